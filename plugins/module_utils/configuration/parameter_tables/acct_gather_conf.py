# Copyright: gpucluster.slurm contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""acct_gather.conf: the tables in `acct_gather_*_p_conf_options` of `src/plugins/acct_gather_*`; the daemons know those
of the plugins that slurm.conf names, and refuse others. acct_gather.conf(5): read when a daemon starts.
"""

from __future__ import annotations

ACCT_GATHER_CONF = """
EnergyIPMIAssumeBmcOwner                 bool  daemons
EnergyIPMIAuthenticationType             u32   daemons
EnergyIPMIBridgeSensors                  bool  daemons
EnergyIPMICalcAdjustment                 bool  daemons
EnergyIPMICipherSuiteId                  u32   daemons
EnergyIPMIDisableAutoProbe               u32   daemons
EnergyIPMIDiscreteReading                bool  daemons
EnergyIPMIDriverAddress                  u32   daemons
EnergyIPMIDriverDevice                   text  daemons
EnergyIPMIDriverType                     u32   daemons
EnergyIPMIEntitySensorNames              bool  daemons
EnergyIPMIFrequency                      u32   daemons
EnergyIPMIIgnoreNonInterpretableSensors  bool  daemons
EnergyIPMIIgnoreScanningDisabled         bool  daemons
EnergyIPMIInterpretOemData               bool  daemons
EnergyIPMIPassword                       text  daemons
EnergyIPMIPowerSensors                   text  daemons
EnergyIPMIPrivilegeLevel                 u32   daemons
EnergyIPMIProtocolVersion                u32   daemons
EnergyIPMIRegisterSpacing                u32   daemons
EnergyIPMIRereadSdrCache                 bool  daemons
EnergyIPMIRetransmissionTimeout          u32   daemons
EnergyIPMISessionTimeout                 u32   daemons
EnergyIPMISharedSensors                  bool  daemons
EnergyIPMITimeout                        u32   daemons
EnergyIPMIUsername                       text  daemons
EnergyIPMIVariable                       text  daemons
EnergyIPMIWorkaroundFlags                u32   daemons
EnergyXCCFake                            bool  daemons
InfinibandOFEDPort                       u32   daemons
InterconnectOFEDPort                     u32   daemons
ProfileHDF5Default                       text  daemons
ProfileHDF5Dir                           text  daemons
ProfileInfluxDBDatabase                  text  daemons
ProfileInfluxDBDefault                   text  daemons
ProfileInfluxDBExtraTags                 text  daemons  26.05+
ProfileInfluxDBFlags                     text  daemons  26.05+
ProfileInfluxDBFrequency                 u32   daemons  25.11+
ProfileInfluxDBHost                      text  daemons
ProfileInfluxDBPass                      text  daemons
ProfileInfluxDBRTPolicy                  text  daemons
ProfileInfluxDBTimeout                   u32   daemons  23.02+
ProfileInfluxDBUser                      text  daemons
SysfsInterfaces                          text  daemons
"""
"""Lines of one parameter."""
