/* A stand-in for pyxis in the tests. It has the options and mounts of pyxis, and runs a task on the host's files, or in
 * an image that is a file; one that begins with a dot has only to be there. A task finds the values of its options in
 * the variables PYXIS_*. A container with a name is a directory in the data directory of enroot. If it runs,
 * PYXIS_attached has the process that pyxis would attach to. The image `missing` cannot be pulled, that of the image
 * `broken` is made and does not start, `slow` takes a minute to start, and `elsewhere` is made where other hosts do not
 * see it. A container that fails is reported where pyxis reports it, in slurm_spank_task_init: Slurm does not tell srun
 * of an earlier failure. With -DRELEASE=0xMMmmuu the plugin claims another release of Slurm than that of its headers;
 * with -DBROKEN it never starts. */
#define _GNU_SOURCE
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef RELEASE
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER RELEASE
#endif

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, NAME, MOUNTS, ENV, WORKDIR, ROOT, NO_ROOT, HOME, COUNT };

static char given[COUNT][1024];
static int failed;

static int take(int value, const char *argument, int remote)
{
	snprintf(given[value], sizeof(given[value]), "%s", argument ? argument : "yes");
	return 0;
}

static struct spank_option options[COUNT] = {
	{"container-image", "IMAGE", "Image of the container.", 1, IMAGE, take},
	{"container-name", "NAME", "Name of the container.", 1, NAME, take},
	{"container-mounts", "FROM:TO,...", "What is mounted.", 1, MOUNTS, take},
	{"container-env", "NAMES", "Variables of the job that win over those of the image.", 1, ENV, take},
	{"container-workdir", "PATH", "Where the task starts.", 1, WORKDIR, take},
	{"container-remap-root", NULL, "Be root inside.", 0, ROOT, take},
	{"no-container-remap-root", NULL, "Be oneself inside.", 0, NO_ROOT, take},
	{"container-mount-home", NULL, "Have the home directory inside.", 0, HOME, take},
};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
#ifdef BROKEN
	return -1;
#endif
	for (int i = 0; i < COUNT; i++)
		if (spank_option_register(spank, &options[i]))
			return -1;
	return 0;
}

static int mount_all(void)
{
	char mounts[sizeof(given[MOUNTS])], *next = strcpy(mounts, given[MOUNTS]), *from, *to;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	while ((from = strsep(&next, ","))) {
		if (!(to = strchr(from, ':')))
			return -1;
		*to++ = 0;
		mkdir(to, 0755);
		if (mount(from, to, NULL, MS_BIND, NULL))
			return -1;
	}
	return 0;
}

static int start(void)
{
	char root[] = "/tmp/pyxis-XXXXXX", command[2048];

	if (strcmp(given[IMAGE], "missing") == 0)
		return -1;
	if (*given[IMAGE] == '/') {
		snprintf(command, sizeof(command), "unsquashfs -quiet -no-progress -force -dest %s %s >&2", mkdtemp(root),
			 given[IMAGE]);
		return system(command) || chroot(root) || chdir("/") ? -1 : 0;
	}
	if (*given[IMAGE] == '.' && access(given[IMAGE], R_OK))
		return -1;
	if (!*given[MOUNTS])
		return 0;
	if (mount_all())
		return -1;
	return *given[WORKDIR] ? chdir(given[WORKDIR]) : 0;
}

int slurm_spank_task_init_privileged(spank_t spank, int count, char **arguments)
{
	failed = start();
	return 0;
}

/* What pyxis asks enroot. */
static void attach(spank_t spank)
{
	char line[256], running[256], process[16];
	FILE *list = popen("enroot list -f", "r");

	while (list && fgets(line, sizeof(line), list))
		if (sscanf(line, "pyxis_%255s %15s", running, process) == 2 && strcmp(running, given[NAME]) == 0)
			spank_setenv(spank, "PYXIS_attached", process, 1);
	if (list)
		pclose(list);
}

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	char name[64], path[512], home[256] = "";

	if (*given[NAME] && strcmp(given[IMAGE], "missing") && strcmp(given[IMAGE], "elsewhere") &&
	    spank_getenv(spank, "HOME", home, sizeof(home)) == ESPANK_SUCCESS) {
		snprintf(path, sizeof(path), "%s/.local/share/enroot/pyxis_%s", home, given[NAME]);
		mkdir(path, 0700);
		setenv("HOME", home, 1);
		attach(spank);
	}
	/* A signal ends the start, as it ends enroot. */
	if (strcmp(given[IMAGE], "slow") == 0 && sleep(60) > 0)
		failed = -1;
	if (failed || strcmp(given[IMAGE], "broken") == 0) {
		slurm_error("pyxis: failed to %s", failed ? "import docker image" : "start container");
		return -1;
	}
	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof(name), "PYXIS_%s", options[i].name);
		for (char *c = name; *c; c++)
			*c = *c == '-' ? '_' : *c;
		if (*given[i])
			spank_setenv(spank, name, given[i], 1);
	}
	return 0;
}
