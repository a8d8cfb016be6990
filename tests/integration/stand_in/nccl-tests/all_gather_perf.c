/*
 * Copyright: gpucluster.slurm contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A stand-in for all_gather_perf of NVIDIA's nccl-tests, for hosts without GPUs, CUDA and NCCL: it gathers bytes of
 * main memory by MPI. It takes the options of nccl-tests that the test has, and prints the same table. Of a message it
 * moves one byte of PART, and its times are those of the whole message at this rate. So the bandwidth is that of the
 * lab's network. Each task first looks for what NCCL needs for GPUDirect-TCPXO, and ends with 1 if something is missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PART 1024
/* Seconds after which a row ends, though it has not had all of its repetitions: two CPUs run 16 tasks here. */
#define ENOUGH 0.25
#define LIBRARIES "/var/lib/tcpxo/lib64"

static const char *variables[] = {"NCCL_FASTRAK_CTRL_DEV", "NCCL_FASTRAK_IFNAME", "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY",
                  "NCCL_SOCKET_IFNAME", "NCCL_PROFILE_OF"};

static int rank, ranks;

static void missing(const char *what, const char *found)
{
    fprintf(stderr, "stand-in for nccl-tests: %s: found '%s'\n", what, found);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

/* Whether a list with commas has this entry; of `FROM:TO` the second part counts. */
static int has(const char *list, const char *entry)
{
    char copy[4096], *next = copy, *one, *to;

    snprintf(copy, sizeof(copy), "%s", list);
    while ((one = strsep(&next, ",")))
        if (strcmp((to = strchr(one, ':')) ? to + 1 : one, entry) == 0)
            return 1;
    return 0;
}

/* The device of this task. The lab's devices have no driver: one of the job gives ENXIO, any other one EPERM. */
static void need_gpu(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/dev/nvidia%s", variable("SLURM_LOCALID"));
    if (open(path, O_RDWR) >= 0 || errno != ENXIO)
        missing(path, strerror(errno));
    if (!has(variable("CUDA_VISIBLE_DEVICES"), variable("SLURM_LOCALID")))
        missing("CUDA_VISIBLE_DEVICES", variable("CUDA_VISIBLE_DEVICES"));
}

/* The library that NCCL would load as its network, by the linker's search. */
static void need_plugin(void)
{
    char list[4096], path[PATH_MAX], *next = list, *directory;

    snprintf(list, sizeof(list), "%s", variable("LD_LIBRARY_PATH"));
    while ((directory = strsep(&next, ":"))) {
        snprintf(path, sizeof(path), "%s/libnccl-net.so", directory);
        if (access(path, R_OK) == 0 && strcmp(directory, LIBRARIES) == 0)
            return;
    }
    missing("libnccl-net.so in LD_LIBRARY_PATH", variable("LD_LIBRARY_PATH"));
}

static void need_all(void)
{
    char command[128];

    if (ranks != atoi(variable("SLURM_NTASKS")))
        missing("tasks of MPI", "a program for each task of Slurm");
    if (!has(variable("PYXIS_container_mounts"), LIBRARIES))
        missing("mount of " LIBRARIES, variable("PYXIS_container_mounts"));
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        if (!*variable(variables[i]) || !has(variable("PYXIS_container_env"), variables[i]))
            missing(variables[i], variable(variables[i]));
    need_gpu();
    need_plugin();
    if (strcmp(variable("SLURM_LOCALID"), "0"))
        return;
    snprintf(command, sizeof(command), "systemctl --quiet is-active docker-tcpxo-%s", variable("SLURM_JOB_ID"));
    if (system(command))
        missing("the receive daemon of the job", "none on this node");
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++)
        printf("# %s %s=%s\n", variable("SLURMD_NODENAME"), variables[i], variable(variables[i]));
}

static size_t bytes(const char *text)
{
    char *unit;
    size_t number = strtoull(text, &unit, 10);
    return *unit == 'G' ? number << 30 : *unit == 'M' ? number << 20 : number;
}

/* Wait asleep: MPI's own calls wait with a CPU each, and there are fewer CPUs than tasks. */
static void finish(MPI_Request request)
{
    int done = 0;

    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
        usleep(20);
}

static void barrier(void)
{
    MPI_Request request;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    finish(request);
}

/* Microseconds of one all_gather; counts bytes that arrived wrong. */
static double gather(char *all, size_t own, int in_place, int warm, int most, long *wrong)
{
    char *mine = all + rank * own, *send = malloc(own);
    MPI_Request request;
    double started, once;
    long bad = 0;
    int times = warm;

    memset(all, 0xff, own * ranks);
    memset(send, rank, own);
    memcpy(mine, send, own);
    for (int round = 0; round < 2; round++) {
        barrier();
        started = MPI_Wtime();
        for (int i = 0; i < times; i++) {
            MPI_Iallgather(in_place ? MPI_IN_PLACE : send, own, MPI_BYTE, all, own, MPI_BYTE, MPI_COMM_WORLD, &request);
            finish(request);
        }
        barrier();
        once = (MPI_Wtime() - started) / times;
        times = once * most > ENOUGH ? ENOUGH / once + 1 : most;
        MPI_Ibcast(&times, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        finish(request);
    }
    for (size_t i = 0; i < own * ranks; i++)
        bad += all[i] != (char)(i / own);
    MPI_Iallreduce(&bad, wrong, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &request);
    finish(request);
    free(send);
    return once * 1e6 * PART;
}

int main(int count, char **words)
{
    size_t least = bytes("32M"), most = bytes("32M");
    int factor = 2, warm = 1, times = 20, rows = 0;
    double sum = 0;
    long bad = 0;

    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i + 1 < count; i += 2) {
        least = strcmp(words[i], "-b") ? least : bytes(words[i + 1]);
        most = strcmp(words[i], "-e") ? most : bytes(words[i + 1]);
        factor = strcmp(words[i], "-f") ? factor : atoi(words[i + 1]);
        warm = strcmp(words[i], "-w") ? warm : atoi(words[i + 1]);
        times = strcmp(words[i], "--iters") ? times : atoi(words[i + 1]);
    }
    need_all();
    barrier();
    if (!rank) {
        printf("# stand-in for nccl-tests: 1 byte of %d is moved, by MPI, between %d tasks\n", PART, ranks);
        printf("#\n#%62s%33s\n", "out-of-place", "in-place");
        printf("#       size         count      type   redop    root     time   algbw   busbw #wrong"
               "     time   algbw   busbw #wrong\n");
        printf("#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
               "     (us)  (GB/s)  (GB/s)\n");
    }
    for (size_t size = least; size <= most; size *= factor, rows++) {
        char *all = malloc(size / PART);

        if (!rank)
            printf("%12zu  %12zu  %8s  %6s  %6d", size, size / sizeof(float) / ranks, "float", "none", -1);
        for (int in_place = 0; in_place < 2; in_place++) {
            long wrong;
            double time = gather(all, size / PART / ranks, in_place, warm, times, &wrong);
            double rate = size / time / 1e3, bus = rate * (ranks - 1) / ranks;

            bad += wrong;
            sum += bus / 2;
            if (!rank)
                printf("  %7.0f  %6.3f  %6.3f  %5ld", time, rate, bus, wrong);
        }
        if (!rank)
            printf("\n");
        free(all);
    }
    if (!rank)
        printf("# Out of bounds values : %ld %s\n# Avg bus bandwidth    : %g\n#\n", bad, bad ? "FAILED" : "OK",
               sum / rows);
    MPI_Finalize();
    return bad != 0;
}
