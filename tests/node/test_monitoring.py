"""The alert rules and dashboards that are made from the table of metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

from node.observability.metrics import TABLES
from node.observability.monitoring.dashboards import DASHBOARDS, dashboard_text
from tests.document_commands import commands_of, refusal
from tests.node.monitoring_files import ALERTS
from tests.node.promtool import needs_promtool, promtool

METRICS = [metric for table in TABLES for metric in table.metrics]
RULES = {alert.name: alert for metric in METRICS for alert in metric.alerts}
NAMES = {metric.name for metric in METRICS} | {
    f"{metric.name}_{part}" for metric in METRICS if metric.bounds for part in ("bucket", "sum", "count")
}

ONE = 'instance="a",job="tidelog"'
FIRES: dict[str, tuple[str, ...]] = {
    # the series that let each alert fire, as promtool writes them: once a minute for eight hours
    "TidelogRemoteCopiesFail": (f"tidelog_remote_failing_partitions{{{ONE}}} 2+0x480",),
    "TidelogRemoteReadsFail": (f"tidelog_remote_read_errors_total{{{ONE}}} 0+1x480",),
    "TidelogRemoteObjectsDoubtful": (f"tidelog_remote_doubtful_objects{{{ONE}}} 5+0x480",),
    "TidelogRemoteSegmentsLost": (f"tidelog_remote_lost_segments{{{ONE}}} 3+0x480",),
    "TidelogRemoteSegmentsMissing": (f"tidelog_remote_missing_offsets{{{ONE}}} 7+0x480",),
    "TidelogTwoClusters": (
        'tidelog_cluster_info{cluster_id="x"} 1+0x480',
        'tidelog_cluster_info{cluster_id="y"} 1+0x480',
    ),
    "TidelogNodeNotReady": (f"tidelog_ready{{{ONE}}} 0+0x480",),
    "TidelogNodeDown": (f"up{{{ONE}}} 0+0x480",),
    "TidelogNoController": (f"tidelog_active_controller{{{ONE}}} 0+0x480",),
    "TidelogProducersForgotten": (f"tidelog_producers_forgotten_total{{{ONE}}} 0+1x480",),
    "TidelogQuorumElections": (f"tidelog_quorum_epoch{{{ONE}}} 0+1x480",),
    "TidelogQuorumSilent": (f"tidelog_quorum_silence_seconds{{{ONE}}} 60+0x480",),
    "TidelogVoterLags": (f'tidelog_quorum_replica_lag{{{ONE},voter="2"}} 5000+0x480',),
    "TidelogElectionsByFailure": (f'tidelog_elections_total{{{ONE},kind="failed"}} 0+1x480',),
    "TidelogUncleanElection": (f"tidelog_unclean_elections_total{{{ONE}}} 0+1x480",),
    "TidelogNodeFlaps": (f'tidelog_fencings_total{{{ONE},cause="refused"}} 0+1x480',),
    "TidelogControllerQueue": (f"tidelog_controller_requests_waiting{{{ONE}}} 5000+0x480",),
    "TidelogOfflinePartitions": (f"tidelog_cluster_offline_partitions{{{ONE}}} 1+0x480",),
    "TidelogReassignmentStuck": (f"tidelog_cluster_reassigning_partitions{{{ONE}}} 3+0x480",),
    "TidelogQueuedMovesStuck": (f"tidelog_cluster_queued_moves{{{ONE}}} 3+0x480",),
    "TidelogLeaderImbalance": (
        f"tidelog_cluster_not_preferred_leaders{{{ONE}}} 5+0x480",
        f"tidelog_cluster_partitions{{{ONE}}} 10+0x480",
    ),
    "TidelogFencedNodes": (f'tidelog_cluster_nodes{{{ONE},state="fenced"}} 1+0x480',),
    "TidelogOfflineReplicas": (f"tidelog_offline_replicas{{{ONE}}} 1+0x480",),
    "TidelogLeaderless": (f"tidelog_leaderless{{{ONE}}} 1+0x480",),
    "TidelogUnderReplicated": (f"tidelog_under_replicated{{{ONE}}} 1+0x480",),
    "TidelogUnderMinIsr": (f"tidelog_under_min_isr{{{ONE}}} 1+0x480",),
    "TidelogReplicaLag": (f'tidelog_partition_replica_lag{{{ONE},follower="2"}} 200000+0x480',),
    "TidelogIsrFlaps": (f"tidelog_isr_shrinks_total{{{ONE}}} 0+10x480", f"tidelog_leaders{{{ONE}}} 3+0x480"),
    "TidelogDirectoryOffline": (f'tidelog_directory_offline{{{ONE},directory="/d"}} 1+0x480',),
    "TidelogDiskFillsUp": (
        f'tidelog_directory_free_bytes{{{ONE},directory="/d"}} 600-1x480',
        f'tidelog_directory_reserve_bytes{{{ONE},directory="/d"}} 10+0x480',
        f'tidelog_directory_total_bytes{{{ONE},directory="/d"}} 2000+0x480',
    ),
    "TidelogDiskFull": (f'tidelog_directory_below_reserve{{{ONE},directory="/d"}} 1+0x480',),
    "TidelogLogsMissing": (f'tidelog_directory_logs_missing{{{ONE},directory="/d"}} 1+0x480',),
    "TidelogLogsDamaged": (f'tidelog_directory_logs_damaged{{{ONE},directory="/d"}} 1+0x480',),
    "TidelogSlowDisk": (
        f'tidelog_disk_seconds_bucket{{{ONE},directory="/d",operation="fsync",le="1.0"}} 0+0x480',
        f'tidelog_disk_seconds_bucket{{{ONE},directory="/d",operation="fsync",le="2.5"}} 0+9x480',
        f'tidelog_disk_seconds_bucket{{{ONE},directory="/d",operation="fsync",le="+Inf"}} 0+9x480',
    ),
    "TidelogUncleanable": (f'tidelog_cleaner_uncleanable{{{ONE},directory="/d"}} 1+0x480',),
    "TidelogRot": (f'tidelog_scrub_findings_total{{{ONE},directory="/d",kind="log"}} 0+1x480',),
    "TidelogDefects": (
        f'tidelog_request_errors_total{{{ONE},method="Data.Fetch",error="UNKNOWN_SERVER_ERROR"}} 0+1x480',
    ),
    "TidelogProduceSlow": (
        f'tidelog_request_seconds_bucket{{{ONE},method="Data.Produce",le="1.0"}} 0+0x480',
        f'tidelog_request_seconds_bucket{{{ONE},method="Data.Produce",le="2.5"}} 0+9x480',
        f'tidelog_request_seconds_bucket{{{ONE},method="Data.Produce",le="+Inf"}} 0+9x480',
    ),
    "TidelogGroupLagRises": (f'tidelog_group_lag{{{ONE},group="g"}} 20000+5x480',),
    "TidelogGroupLosesRecords": (f'tidelog_group_lag_deleted{{{ONE},group="g"}} 7+0x480',),
    "TidelogCoordinatorUnreadable": (
        f'tidelog_coordinator_partitions{{{ONE},coordinator="group",state="unreadable"}} 1+0x480',
    ),
    "TidelogCoordinatorSuspended": (
        f'tidelog_coordinator_partitions{{{ONE},coordinator="group",state="suspended"}} 1+0x480',
    ),
    "TidelogTransactionHangs": (f"tidelog_transaction_oldest_seconds{{{ONE}}} 4000+0x480",),
    "TidelogAuthenticationFailures": (f'tidelog_audit_events_total{{{ONE},event="authentication_failed"}} 0+120x480',),
    "TidelogCertificateExpires": (f'tidelog_certificate_not_after_seconds{{{ONE},listener="l"}} 1000000+0x480',),
    "TidelogLoopLag": (
        f'tidelog_event_loop_lag_seconds_bucket{{{ONE},le="0.25"}} 0+0x480',
        f'tidelog_event_loop_lag_seconds_bucket{{{ONE},le="0.5"}} 0+9x480',
        f'tidelog_event_loop_lag_seconds_bucket{{{ONE},le="+Inf"}} 0+9x480',
    ),
    "TidelogMemoryWaits": (f'tidelog_memory_waiting{{{ONE},kind="produce"}} 2+0x480',),
    "TidelogRestarts": (f"process_start_time_seconds{{{ONE}}} 0+60x480",),
    "TidelogOpenFiles": (f"process_open_fds{{{ONE}}} 90+0x480", f"process_max_fds{{{ONE}}} 100+0x480"),
}


def accepted(*arguments: str) -> str:
    """What promtool says, which finds nothing wrong."""
    ended = promtool(*arguments)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_rules_and_dashboards_name_existing_metrics() -> None:
    texts = [*(alert.expr for alert in RULES.values()), *map(dashboard_text, DASHBOARDS)]
    for text in texts:
        assert set(re.findall(r"\btidelog_\w+", text)) <= NAMES


def test_each_metric_is_on_a_dashboard() -> None:
    text = "".join(map(dashboard_text, DASHBOARDS))
    assert [each.name for each in METRICS if not re.search(rf"\b{each.name}(?:_bucket)?\b", text)] == []


def test_panels_of_a_dashboard_do_not_overlap_and_have_numbers_of_their_own() -> None:
    for dashboard in DASHBOARDS:
        panels = json.loads(dashboard_text(dashboard))["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        places = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(places)) == len(places)


def test_the_next_command_of_each_alert_is_one_that_there_is() -> None:
    """The command tree parses those of `tidelog`; the others are programs of the system."""
    for alert in RULES.values():
        found = list(commands_of(alert.command))
        assert [refusal(arguments) for arguments in found] in ([None], []), alert.name
        assert found or alert.command.split()[0] in ("curl", "openssl", "ss"), alert.name


def test_each_rule_has_an_example() -> None:
    assert set(FIRES) == set(RULES)


@needs_promtool
def test_queries_of_dashboards_are_promql(tmp_path: Path) -> None:
    """promtool checks the expressions of rules."""
    exprs = [
        target["expr"].replace("$__rate_interval", "5m").replace("$", "")
        for dashboard in DASHBOARDS
        for panel in json.loads(dashboard_text(dashboard))["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(exprs)]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(exprs)} rules found" in accepted("check", "rules", str(file))


@needs_promtool
def test_each_rule_fires_on_its_example_and_on_no_other(tmp_path: Path) -> None:
    """One that never fires, by a wrong label or unit, is worse than none."""
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": values} for name, values in (each.rsplit(" ", 1) for each in series)
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "8h",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
                }
            ],
        }
        for alert, series in FIRES.items()
    ]
    file = tmp_path / "rules_test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "30m", "tests": tests}))
    accepted("check", "rules", str(ALERTS))
    accepted("test", "rules", str(file))
