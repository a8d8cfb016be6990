/*
 * Copyright: gpucluster.slurm contributors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A stand-in for NVIDIA's libnvidia-ml.so.1 on hosts without GPUs, with only the functions that Slurm's plugin gpu/nvml
 * calls.
 *
 * A line of the file GPUS describes a GPU: its name, then, if it is in MIG mode, a bar and its MIG instances:
 *     NVIDIA H100 80GB HBM3
 *     NVIDIA H100 80GB HBM3|3g.40gb 1g.10gb
 * GPU n is /dev/nvidian and GPU-00000000-0000-0000-0000-00000000000n; instance i of it, from 1, is MIG-n-i, with the GPU
 * instance i and its compute instance 0.
 */
#include <stdio.h>
#include <string.h>

#define GPUS "/etc/nvml-stand-in"
#define MOST 16

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

typedef struct device {
    char name[96];
    char uuid[80];
    unsigned minor, instance, instances;
    struct device *mig;
} device;

typedef struct {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_info;

static device gpus[MOST], instances[MOST][MOST];
static unsigned count;

int nvmlInit_v2(void)
{
    char line[256];
    FILE *file = fopen(GPUS, "r");

    if (!file)
        return DRIVER_NOT_LOADED;
    for (count = 0; count < MOST && fgets(line, sizeof(line), file); count++) {
        device *gpu = &gpus[count];
        char *name = strtok(line, "|\n"), *profile;

        *gpu = (device){.minor = count, .mig = instances[count]};
        snprintf(gpu->name, sizeof(gpu->name), "%s", name);
        snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-00000000-0000-0000-0000-%012u", count);
        while (gpu->instances < MOST && (profile = strtok(NULL, " \n"))) {
            device *mig = &gpu->mig[gpu->instances++];

            *mig = (device){.minor = count, .instance = gpu->instances};
            snprintf(mig->name, sizeof(mig->name), "%s MIG %s", name, profile);
            snprintf(mig->uuid, sizeof(mig->uuid), "MIG-%u-%u", count, gpu->instances);
        }
    }
    fclose(file);
    return SUCCESS;
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "not supported" : "the stand-in has failed"; }

static int text(char *to, unsigned size, const char *from)
{
    snprintf(to, size, "%s", from);
    return SUCCESS;
}

static int number(unsigned *to, unsigned from)
{
    *to = from;
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned size) { return text(version, size, "550.00.01"); }
int nvmlSystemGetNVMLVersion(char *version, unsigned size) { return text(version, size, "12.550.00.01"); }

int nvmlDeviceGetCount_v2(unsigned *found) { return number(found, count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **gpu)
{
    *gpu = &gpus[index];
    return index < count ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetName(device *gpu, char *name, unsigned size) { return text(name, size, gpu->name); }
int nvmlDeviceGetUUID(device *gpu, char *uuid, unsigned size) { return text(uuid, size, gpu->uuid); }
int nvmlDeviceGetMinorNumber(device *gpu, unsigned *minor) { return number(minor, gpu->minor); }

int nvmlDeviceGetPciInfo_v3(device *gpu, pci_info *info)
{
    *info = (pci_info){.bus = gpu->minor + 1};
    snprintf(info->bus_id, sizeof(info->bus_id), "00000000:%02X:00.0", info->bus);
    return text(info->legacy_bus_id, sizeof(info->legacy_bus_id), info->bus_id + 4);
}

/* All GPUs are near the first two CPUs. */
int nvmlDeviceGetCpuAffinity(device *gpu, unsigned words, unsigned long *cpus)
{
    (void)gpu;
    memset(cpus, 0, words * sizeof(*cpus));
    cpus[0] = 3;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device *gpu, unsigned *current, unsigned *pending)
{
    number(pending, gpu->instances > 0);
    return number(current, gpu->instances > 0);
}

int nvmlDeviceGetMaxMigDeviceCount(device *gpu, unsigned *most) { return number(most, gpu->instances); }

int nvmlDeviceGetMigDeviceHandleByIndex(device *gpu, unsigned index, device **mig)
{
    *mig = &gpu->mig[index];
    return index < gpu->instances ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(device *mig, unsigned *id) { return number(id, mig->instance); }
int nvmlDeviceGetComputeInstanceId(device *mig, unsigned *id) { (void)mig; return number(id, 0); }

/* No process uses a GPU: what slurmstepd asks for while a job has one. */
#define NO_PROCESSES(function) \
    int function(device *gpu, unsigned *found, void *processes) { (void)gpu; (void)processes; return number(found, 0); }
NO_PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)

/* Needed to load the plugin; it does without what they tell. */
#define MISSING(function) int function(void) { return NOT_SUPPORTED; }
MISSING(nvmlDeviceGetApplicationsClock)
MISSING(nvmlDeviceGetAttributes_v2)
MISSING(nvmlDeviceGetNvLinkRemotePciInfo_v2)
MISSING(nvmlDeviceGetNvLinkState)
MISSING(nvmlDeviceGetProcessUtilization)
MISSING(nvmlDeviceGetSupportedGraphicsClocks)
MISSING(nvmlDeviceGetSupportedMemoryClocks)
MISSING(nvmlDeviceResetApplicationsClocks)
MISSING(nvmlDeviceSetApplicationsClocks)
