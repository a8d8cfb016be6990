# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""slurmdbd.conf: `read_slurmdbd_conf` in `src/slurmdbd/read_config.c`, slurmdbd.conf(5).

slurmdbd takes some of it over at SIGHUP; a restart takes all, and slurmctld keeps for it what happens meanwhile.
"""

from __future__ import annotations

SLURMDBD_CONF = """
AllowNoDefAcct           bool                 slurmdbd!
AllResourcesAbsolute     bool                 slurmdbd!  23.02+
ArchiveDir               dir                  slurmdbd!
ArchiveEvents            bool                 slurmdbd!
ArchiveJobEnv            bool                 slurmdbd!  26.05+
ArchiveJobs              bool                 slurmdbd!
ArchiveJobScript         bool                 slurmdbd!  26.05+
ArchiveResvs             bool                 slurmdbd!
ArchiveScript            program              slurmdbd!
ArchiveSteps             bool                 slurmdbd!
ArchiveSuspend           bool                 slurmdbd!
ArchiveTXN               bool                 slurmdbd!
ArchiveUsage             bool                 slurmdbd!
AuthAltParameters        text                 slurmdbd!
AuthAltTypes             plugins auth         slurmdbd!
AuthInfo                 text                 slurmdbd!
AuthType                 plugin auth          cluster
CommitDelay              u16 s                slurmdbd!
CommunicationParameters  hints                slurmdbd!
DbdAddr                  host                 slurmdbd!
DbdBackupHost            host                 slurmdbd!
DbdHost                  host                 slurmdbd!
DbdPort                  u16                  slurmdbd!
DebugFlags               flags                slurmdbd!
DebugLevel               level                slurmdbd!
DebugLevelSyslog         level                slurmdbd!
DefaultQOS               text                 slurmdbd!
DisableArchiveCommands   bool                 slurmdbd!  25.11+
DisableCoordDBD          bool                 slurmdbd!  24.05+
DisableRollups           bool                 slurmdbd!  26.05+
HashPlugin               plugin hash          slurmdbd!  24.05+
JobPurge                 u32                  slurmdbd!
LogFile                  path                 slurmdbd!
LogTimeFormat            hints                slurmdbd!
MaxPurgeLimit            u32                  slurmdbd!  25.11+
MaxQueryTimeRange        text                 slurmdbd!
MessageTimeout           u16 s                slurmdbd!
Parameters               hints DbdParameters  slurmdbd!
PidFile                  path                 slurmdbd!
PluginDir                dir                  slurmdbd!
PrivateData              hints                slurmdbd!
PurgeEventAfter          purge                slurmdbd!
PurgeEventMonths         u32                  slurmdbd!
PurgeJobAfter            purge                slurmdbd!
PurgeJobEnvAfter         purge                slurmdbd!  26.05+
PurgeJobMonths           u32                  slurmdbd!
PurgeJobScriptAfter      purge                slurmdbd!  26.05+
PurgeResvAfter           purge                slurmdbd!
PurgeStepAfter           purge                slurmdbd!
PurgeStepMonths          u32                  slurmdbd!
PurgeSuspendAfter        purge                slurmdbd!
PurgeSuspendMonths       u32                  slurmdbd!
PurgeTXNAfter            purge                slurmdbd!
PurgeTXNMonths           u32                  slurmdbd!
PurgeUsageAfter          purge                slurmdbd!
PurgeUsageMonths         u32                  slurmdbd!
SlurmUser                user                 slurmdbd!
StepPurge                u32                  slurmdbd!
StorageBackupHost        host                 slurmdbd!
StorageHost              host                 slurmdbd!
StorageLoc               text                 slurmdbd!
StorageParameters        text                 slurmdbd!
StoragePass              text                 slurmdbd!
StoragePassScript        path                 slurmdbd!  25.11+
StoragePort              u16                  slurmdbd!
StorageType              plugin storage       slurmdbd!
StorageUser              user                 slurmdbd!
TCPTimeout               u16 s                slurmdbd!
TLSParameters            text                 slurmdbd!  24.05+
TLSType                  plugin tls           slurmdbd!  24.05+
TrackSlurmctldDown       bool                 slurmdbd!
TrackWCKey               bool                 slurmdbd!
"""
"""Lines of one parameter."""
