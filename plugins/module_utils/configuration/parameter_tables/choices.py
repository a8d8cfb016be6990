# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words that values are made of, and the releases that know them.

`word` is known to every release, `word{23.02+}` from 23.02 on, `word{-24.11}` up to 24.11, `word{23.11-25.11}` between.
Slurm compares them without case, except the names of resource limits.
"""

from __future__ import annotations

CHOICES = {
    "EnforcePartLimits": "all any down false no true up yes 0 1",
    "Exclusive": "NO NODE NONE TOPO USER",
    "OverSubscribe": "EXCLUSIVE FORCE FORCE: NO YES YES:",
    "PartitionSelect": "CR_Core CR_Core_Memory CR_Socket CR_Socket_Memory",
    "NodeState": "ALLOCATED CLOUD* DOWN DRAIN* EXTERNAL*{25.05+} FAIL* FUTURE IDLE MIXED UNKNOWN",
    "PartitionState": "DOWN* DRAIN* INACTIVE* UP*",
    "PowerLocation": "slurmctld slurmd",
    "ResetPeriod": "daily monthly none now quarterly weekly yearly",
}
"""Values that are one of a closed set: Slurm refuses another (`_validate_and_set_defaults`, `_parse_partitionname` in
`src/common/read_config.c`, `state_str2int` in `src/common/node_conf.c`). What ends with a colon is followed by a
number, and what ends with a star by anything: DRAINED is DRAIN."""

FLAGS = {
    "AccountingStorageEnforce": "1 2 all associations limits nojobs nosteps qos safe wckeys",
    "DebugFlags": """
        Accrue Agent AuditRPCs{24.05+} AuditTLS{25.05+} Backfill BackfillMap BurstBuffer cgroup ConMgr{24.11+}
        CPU_Bind CpuFrequency Data DB_Archive DB_Assoc DB_Event DB_Job DB_QOS DB_Query DB_Reservation DB_Resource
        DB_Step DB_TRES DB_Usage DB_WCKey DBD_Agent{24.05+} Dependency Elasticsearch Energy ExtSensors{-23.11}
        Federation FrontEnd{-24.11} Gang GLOB_SILENCE{23.11+} Gres Hetjob Interconnect JAG JobAccountGather
        JobComp{23.02+} JobContainer License Metrics{25.11+} MPI Namespace{25.11+} Net NetRaw Network NetworkRaw
        NO_CONF_HASH NodeFeatures Power PowerSave Priority Profile Protocol Reservation Route Sack{23.11+} Script
        SelectType Steps Switch Task thread{26.05+} threads{26.05+} TimeCray{-23.11} TLS{24.05+} TraceJobs Trigger
        Triggers WorkQ WorkQueue
    """,
    "PreemptMode": "cancel cluster gang off on priority{25.05+} requeue suspend within",
    "PrologFlags": "Alloc Contain DeferBatch ForceRequeueOnFail{23.02+} NoHold RunInJob{24.05+} Serial X11",
    "ResourceLimits": "ALL NONE AS CORE CPU DATA FSIZE MEMLOCK NOFILE NPROC RSS STACK",
    "SelectTypeParameters": """
        CR_ALLOCATE_FULL_SOCKET{-22.05} CR_Core CR_CORE_DEFAULT_DIST_BLOCK CR_Core_Memory CR_CPU CR_CPU_Memory
        CR_LLN CR_Memory CR_NO_DIST_TOPO_BLOCK{26.05+} CR_ONE_TASK_PER_CORE CR_PACK_NODES CR_Socket CR_Socket_Memory
        ENFORCE_BINDING_GRES{23.11+} LL_SHARED_GRES{23.11+} MULTIPLE_SHARING_GRES_PJ{23.11+}
        ONE_TASK_PER_SHARING_GRES{23.11+} other_cons_res{-23.02} other_cons_tres{-23.11}
    """,
    "TaskPluginParam": """
        autobind=cores autobind=none autobind=sockets autobind=threads cores none OOMKillStep{24.11+} SlurmdOffSpec
        SlurmdSpecOverride{25.05+} sockets threads verbose
    """,
}
"""Values that are lists with commas of a closed set: Slurm refuses another word (`debug_str2flags`, `prolog_str2flags`,
`preempt_mode_num`, `parse_rlimits` and the like)."""

HINTS = {
    "AccountingStorageParameters": "max_step_records={24.05+} SSL_CA SSL_CAPATH SSL_CERT SSL_CIPHER SSL_KEY",
    "AccountingStoreFlags": "job_comment job_env job_extra{23.02+} job_script no_stdio{24.05+}",
    "AutoDetect": "full{26.05+} nrt{23.11+} nvidia{24.11+} nvml off oneapi rsmi",
    "BcastParameters": "Compression= DestDir= send_libs",
    "CliFilterParameters": "cli_filter_lua_path={25.11+}",
    "CommunicationParameters": """
        block_null_hash block_zero_hash CheckGhalQuiesce{-23.11} disable_http{25.11+} DisableIPv4 EnableIPv6
        getnameinfo_cache_timeout={23.02+} host_unreach_retry_count={25.05+} keepaliveinterval= keepaliveprobes=
        keepalivetime= NoAddrCache NoCtldInAddrAny NoInAddrAny
    """,
    "CpuBind": "core cores ldom ldoms no none off socket sockets thread threads v verbose",
    "DbdParameters": "PreserveCaseResource{26.05+} PreserveCaseUser",
    "DependencyParameters": "disable_remote_singleton kill_invalid_depend max_depend_depth=",
    "FederationParameters": "fed_display",
    "GresFlags": """
        all_sharing amd_gpu_env CountOnly env_uuid{26.05+} explicit{23.02+} intel_gpu_env no_gpu_env nvidia_gpu_env
        one_sharing opencl_env
    """,
    "HealthCheckNodeState": "ALLOC ANY CYCLE IDLE MIXED NONDRAINED_IDLE{23.02+} REBOOT_ONLY{26.05+} START_ONLY{25.11+}",
    "JobAcctGatherParams": "DisableGPUAcct{23.02+} no_file_cache{25.11+} NoShare NoShared OverMemoryKill UsePss",
    "LaunchParameters": """
        batch_step_set_cpu_freq cray_net_exclusive disable_send_gids enable_nss_slurm
        interactive_step_set_cpu_freq{25.11+} lustre_no_flush mem_sort{-25.11} mpir_use_nodeaddr slurmstepd_memlock
        slurmstepd_memlock_all srun_exclusive_allocation{26.05+} test_exec ulimit_pam_adopt{23.02+}
        use_interactive_step
    """,
    "LicenseParameters": "RemoteFuzzyMatch{26.05+}",
    "LogTimeFormat": """
        clock format_stderr{23.11+} iso8601 iso8601_ms rfc3339{23.02+} rfc5424 rfc5424_ms short thread_id
    """,
    "MetricsParameters": "ignore_private_data{26.05+}",
    "PartitionPreemptMode": "cancel cluster gang off on priority{25.05+} requeue suspend within",
    "PreemptParameters": """
        min_exempt_priority={23.02+} reclaim_licenses{23.02+} reorder_count={23.02+} send_user_signal{23.02+}
        strict_order{23.02+} suspend_grace_time{23.11+} youngest_first{23.02+}
    """,
    "PriorityFlags": """
        ACCRUE_ALWAYS CALCULATE_RUNNING DEPTH_OBLIVIOUS INCR_ONLY MAX_TRES MAX_TRES_GRES{25.05+} NO_FAIR_TREE
        NO_NORMAL_ALL NO_NORMAL_ASSOC NO_NORMAL_PART NO_NORMAL_QOS NO_NORMAL_TRES SMALL_RELATIVE_TO_TIME
    """,
    "PrivateData": "account all cloud{-22.05} event job node partition reservation usage user",
    "ReconfigFlags": "KeepNodeStateFuture{24.11-24.11} KeepPartInfo KeepPartState KeepPowerSaveSettings{23.02+}",
    "SchedulerParameters": """
        allow_zero_lic assoc_limit_stop batch_sched_delay= bb_array_stage_cnt= bf_allow_magnetic_slot{24.11+}
        bf_busy_nodes bf_continue bf_hetjob_immediate bf_hetjob_prio= bf_interval= bf_job_part_count_reserve=
        bf_licenses bf_max_job_array_resv= bf_max_job_assoc= bf_max_job_part= bf_max_job_start= bf_max_job_test=
        bf_max_job_user= bf_max_job_user_part= bf_max_time= bf_min_age_reserve= bf_min_prio_reserve=
        bf_node_space_size= bf_one_resv_per_job bf_resolution= bf_running_job_reserve bf_topopt_enable{24.11+}
        bf_topopt_iterations={24.11+} bf_window= bf_window_linear= bf_yield_interval= bf_yield_rpc_cnt={25.05+}
        bf_yield_rpc_count={25.05+} bf_yield_sleep= build_queue_timeout= correspond_after_task_cnt=
        default_queue_depth= defer defer_batch{23.02+} delay_boot= disable_hetero_steps disable_hetjob_steps
        disable_job_shrink enable_hetjob_steps enable_job_state_cache{23.11-25.11} enable_user_top
        extra_constraints{23.11+} ignore_constraint_validation{24.11+} Ignore_NUMA ignore_prefer_validation
        jobs_per_user_per_hour= max_array_tasks= max_job_bf= max_rpc_cnt= max_rpc_count= max_sched_time=
        max_script_size= max_submit_line_size={23.11+} max_switch_wait= no_backup_scheduling no_env_cache{-24.11}
        nohold_on_prolog_fail pack_serial_at_end partition_job_depth= permit_job_expansion preempt_reorder_count=
        preempt_strict_order preempt_youngest_first reduce_completing_frag requeue_delay={25.11+}
        requeue_on_resume_failure{25.05+} requeue_setup_env_fail{-24.11} salloc_wait_nodes sbatch_wait_nodes
        sched_interval= sched_max_job_start= sched_min_interval= spec_cores_first step_retry_count= step_retry_time=
        time_min_as_soft_limit{23.11+} whole_hetjob whole_pack
    """,
    "ScronParameters": "enable explicit_scancel{23.02+}",
    "SlurmctldParameters": """
        allow_user_triggers cloud_dns cloud_reg_addrs conmgr_connect_timeout{24.11+} conmgr_max_connections{24.11+}
        conmgr_quiesce_timeout{25.05+} conmgr_read_timeout{24.11+} conmgr_threads{24.11+} conmgr_use_poll{24.11+}
        conmgr_wait_write_delay{24.11+} conmgr_write_timeout{24.11+} disable_triggers{23.11+}
        enable_async_reply{25.11+} enable_configless enable_expedited_requeue{25.11+}
        enable_job_state_cache{23.11-23.11} enable_rpc_queue enable_stepmgr{24.05+} health_check_report{26.05+}
        idle_on_node_suspend max_dbd_msg_action= max_powered_nodes={24.05+} no_quick_restart{23.11+}
        node_reg_mem_percent= power_save_interval= power_save_min_interval= preempt_send_user_signal
        reboot_from_controller reconfig_on_restart{25.11+} rl_bucket_size={23.02+} rl_enable{23.02+}
        rl_log_freq={23.11+} rl_refill_period={23.02+} rl_refill_rate={23.02+} rl_table_size={23.02+}
        user_resv_delete validate_nodeaddr_threads={23.02+}
    """,
    "SlurmdParameters": """
        allow_ecores{23.02+} config_override config_overrides conmgr_connect_timeout{24.11+}
        conmgr_max_connections{24.11+} conmgr_quiesce_timeout{25.05+} conmgr_read_timeout{24.11+}
        conmgr_threads{24.11+} conmgr_use_poll{24.11+} conmgr_wait_write_delay{24.11+} conmgr_write_timeout{24.11+}
        contain_spank{24.05+} l3cache_as_socket numa_node_as_socket shutdown_on_reboot
    """,
    "SwitchParameters": """
        adjust_limits{23.02+} def_ destroy_retries={24.11+} fm_auth={23.11+} fm_authdir={23.11+}
        fm_authdir_ctld={26.05+} fm_mtls_ca={25.05+} fm_mtls_cert={25.05+} fm_mtls_key={25.05+} fm_mtls_url={25.05+}
        fm_url={23.11+} hwcoll_addrs_per_job={23.11+} hwcoll_num_nodes={23.11+} imex_channel_count={24.05+}
        imex_dev_major={24.05+} jlope_auth={23.02-24.05} jlope_authdir={23.02-24.05} jlope_url={23.02-24.05}
        job_vni{23.02+} max_ nic_distribution_count={25.11+} no_adjust_limits{23.02+} res_ single_node_vni{23.02+} tcs=
        vnis=
    """,
    "TopologyParam": """
        BlockAsNodeRank{25.11+} Dragonfly NoCtldInAddrAny NoInAddrAny RoutePart{23.11+} RouteTree{23.11+}
        SwitchAsNodeRank{23.02+} TopoMaxSizeUnroll={24.11+} TopoOptional
    """,
    "X11Parameters": "home_xauthority",
}
"""Values that are lists with commas in which Slurm searches for the words that it knows, and does without the others,
mostly silently (`xstrcasestr(slurm_conf.sched_params, ...)` in the code that obeys the word). A word with an
equals sign is searched for with it."""

WHOLE = ("ALLOC", "ANY", "CYCLE", "IDLE", "MIXED", "NONDRAINED_IDLE", "OverMemoryKill", "REBOOT_ONLY", "START_ONLY")
"""Hints that Slurm compares as a whole (`xstrcasecmp` in `_health_node_state` and `_validate_and_set_defaults` in
`src/common/read_config.c`)."""

NONE_IN_ANY_CASE = (
    "AccountingStorageType",
    "AcctGatherEnergyType",
    "AcctGatherFilesystemType",
    "AcctGatherInfinibandType",
    "AcctGatherInterconnectType",
    "AcctGatherProfileType",
    "JobAcctGatherType",
    "JobCompType",
    "MCSPlugin",
    "PrioritySiteFactorPlugin",
    "SwitchType",
    "TopologyPlugin",
)
"""Parameters whose plugin `none` can have any case since 23.11 (`_validate_and_set_defaults`)."""

PLUGINS = {
    "auth": "jwt munge none slurm{23.11+}",
    "burst_buffer": "datawarp lua",
    "certgen": "script{25.05+}",
    "certmgr": "script{24.11+}",
    "cgroup": "autodetect disabled{24.05+} v1 v2",
    "cli_filter": "lua none syslog user_defaults",
    "cred": "munge none",
    "crypto": "munge none",
    "energy": "gpu ibmaem ipmi none pm_counters rapl xcc",
    "ext_sensors": "none rrd{-23.11}",
    "filesystem": "lustre none",
    "hash": "k12 sha3{24.05+}",
    "http_parser": "libhttp_parser{25.11+} llhttp_parser{26.05+}",
    "interconnect": "none ofed sysfs",
    "job_container": "cncu{-23.11} none tmpfs{-25.05}",
    "job_submit": """
        all_partitions cray_aries{-23.11} defaults logging lua partition pbs require_timelimit throttle
    """,
    "jobacct_gather": "cgroup linux none",
    "jobcomp": "elasticsearch filetxt kafka{23.02+} lua mysql none script",
    "launch": "slurm{-22.05}",
    "mcs": "account group label{24.11+} none user",
    "metrics": "openmetrics{25.11+}",
    "mpi": "cray_shasta none pmi2 pmix",
    "namespace": "linux{25.11+} none tmpfs{25.11+}",
    "node_features": "helpers knl_cray{-23.11} knl_generic{-25.05}",
    "power": "cray_aries{-23.11} none",
    "preempt": "none partition_prio qos",
    "prep": "script",
    "priority": "basic multifactor",
    "proctrack": "cgroup cray_aries{-23.11} linuxproc pgid",
    "profile": "hdf5 influxdb none",
    "route": "default{-23.02} topology{-23.02}",
    "sched": "backfill builtin",
    "select": "cons_res{-23.02} cons_tres cray_aries{-23.11} linear",
    "site_factor": "example{23.11+} none",
    "slurmctld": "nonstop{-22.05}",
    "storage": "ctld_relay{24.05+} mysql none slurmdbd",
    "switch": "cray_aries{-23.11} hpe_slingshot none nvidia_imex{24.05+}",
    "task": "affinity cgroup cray_aries{-23.11} none",
    "tls": "none s2n{24.05+}",
    "topology": """
        3d_torus{-24.11} block{23.11+} default{23.11+} flat{25.05+} hypercube{-23.02} none ring{26.05+}
        torus3d{26.05+} tree
    """,
    "url_parser": "internal{26.05+}",
}
"""The plugins of Slurm itself, by kind: the folders of `src/plugins`. A site may have others."""

BOOLEANS = ("yes", "up", "true", "1", "no", "down", "false", "0")
"""`s_p_handle_boolean`, in any case."""

LEVELS = ("quiet", "fatal", "error", "info", "verbose", "debug", "debug2", "debug3", "debug4", "debug5")
"""`log_string2num`, in any case; anything that starts with a digit is a number to it."""

PROLOG_AT_ALLOCATION = "alloc contain deferbatch{26.05+} forcerequeueonfail{23.02+} runinjob{24.05+} x11"
"""The PrologFlags that set Alloc (`prolog_str2flags` in `src/common/read_config.c`)."""
