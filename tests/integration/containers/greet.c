/* A SPANK plugin for the tests: an option --greet=NAME for srun and sbatch, and GREETED=NAME in each task.
 * With -DRELEASE=0xMMmmuu it claims to be for another release of Slurm than its headers'. */
#include <slurm/spank.h>
#include <stdlib.h>

#ifdef RELEASE
#undef SLURM_VERSION_NUMBER
#define SLURM_VERSION_NUMBER RELEASE
#endif

SPANK_PLUGIN(greet, 1)

static char name[64];

static int take(int value, const char *argument, int remote)
{
	for (unsigned i = 0; i < sizeof(name) - 1 && argument[i]; i++)
		name[i] = argument[i];
	return 0;
}

static struct spank_option option = {"greet", "NAME", "Greet NAME in each task.", 1, 0, take};

int slurm_spank_init(spank_t spank, int count, char **arguments)
{
	return spank_option_register(spank, &option);
}

int slurm_spank_task_init(spank_t spank, int count, char **arguments)
{
	spank_setenv(spank, "GREETING", count ? arguments[0] : "none", 1);
	return *name ? spank_setenv(spank, "GREETED", name, 1) : 0;
}
