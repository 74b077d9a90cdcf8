"""Values of driver settings, and how the reference's drivers and this one interpret each.

``tests/vectors/driver_settings.tsv`` has a line for each case: the setting, the value, and the answers of the C driver, the Java
driver and this one. An answer is ``refused``, the value in use (durations in nanoseconds), or ``accepted`` if the driver does not
show the value. ``-`` marks a setting that the driver does not have.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support import java

from mainstem.aeron.driver.driver_core import cnc_layout
from mainstem.aeron.driver.event_log.log import chosen_events
from mainstem.aeron.driver.media.loss_settings import incoming_loss, outgoing_loss
from mainstem.aeron.driver.media.transport import BufferLimits, check_buffers
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

VECTORS = Path(__file__).resolve().parents[1] / "vectors" / "driver_settings.tsv"
ACCEPTED, REFUSED, ABSENT = "accepted", "refused", "-"
COLUMNS = ("setting", "value", "C", "Java", "here")
# Settings whose key in the configuration that a driver prints differs from their name: in C, and in Java.
C_KEYS = {
    "driver_timeout": "driver_timeout_ms",
    "dir_delete_on_start": "dirs_delete_on_start",
    "dir_delete_on_shutdown": "dirs_delete_on_shutdown",
    "dir_warn_if_exists": "warn_if_dirs_exists",
    "conductor_buffer_length": "to_driver_buffer_length",
    "clients_buffer_length": "to_clients_buffer_length",
    "counters_buffer_length": "counters_values_buffer_length",
    "loss_report_buffer_length": "loss_report_length",
    "publication_term_window_length": "publication_window_length",
    "ipc_publication_term_window_length": "ipc_publication_window_length",
    "rcv_initial_window_length": "initial_window_length",
    "rcv_status_message_timeout": "status_message_timeout_ns",
    "socket_so_rcvbuf": "socket_rcvbuf_length",
    "socket_so_sndbuf": "socket_sndbuf_length",
    "socket_multicast_ttl": "multicast_ttl",
    "counters_free_to_reuse_timeout": "counter_free_to_reuse_ns",
    "send_to_status_poll_ratio": "send_to_sm_poll_ratio",
    "driver_resource_free_limit": "resource_free_limit",
    "driver_stream_session_limit": "stream_session_limit",
    "driver_reresolution_check_interval": "re_resolution_check_interval_ns",
    "flow_control_group_tag": "flow_control.group_tag",
    "flow_control_group_min_size": "flow_control.group_min_size",
    "receiver_group_tag": "receiver_group_tag.value",
    "driver_conductor_cycle_threshold": "conductor_cycle_threshold_ns",
    "driver_sender_cycle_threshold": "sender_cycle_threshold_ns",
    "driver_receiver_cycle_threshold": "receiver_cycle_threshold_ns",
    "driver_name_resolver_threshold": "name_resolver_threshold_ns",
    "conductor_cpu_affinity": "conductor_cpu_affinity_no",
    "sender_cpu_affinity": "sender_cpu_affinity_no",
    "receiver_cpu_affinity": "receiver_cpu_affinity_no",
    "driver_native_resource_agent_cpu_affinity": "native_resource_agent_cpu_affinity_no",
}
JAVA_KEYS = {
    "driver_timeout": "driverTimeoutMs",
    "dir_warn_if_exists": "warnIfDirectoryExists",
    "clients_buffer_length": "toClientsBufferLength",
    "counters_buffer_length": "counterValuesBufferLength",
    "low_file_store_warning_threshold": "lowStorageWarningThreshold",
    "term_buffer_length": "publicationTermBufferLength",
    "rcv_initial_window_length": "initialWindowLength",
    "rcv_status_message_timeout": "statusMessageTimeoutNs",
    "socket_so_rcvbuf": "socketRcvbufLength",
    "socket_so_sndbuf": "socketSndbufLength",
    "counters_free_to_reuse_timeout": "counterFreeToReuseTimeoutNs",
    "send_to_status_poll_ratio": "sendToStatusMessagePollRatio",
    "driver_resource_free_limit": "resourceFreeLimit",
    "driver_stream_session_limit": "streamSessionLimit",
    "driver_reresolution_check_interval": "reResolutionCheckIntervalNs",
    "driver_conductor_cycle_threshold": "conductorCycleThresholdNs",
    "driver_sender_cycle_threshold": "senderCycleThresholdNs",
    "driver_receiver_cycle_threshold": "receiverCycleThresholdNs",
    "driver_name_resolver_threshold": "nameResolverThresholdNs",
    "unicast_flow_control_rrwm": "unicastFlowControlRetransmitReceiverWindowMultiple",
    "multicast_flow_control_rrwm": "multicastFControlRetransmitReceiverWindowMultiple",
}
# Properties of the Java driver whose names are not the environment variable in lower case with dots.
JAVA_NAMES = {
    "AERON_CONGESTIONCONTROL_SUPPLIER": "aeron.CongestionControl.supplier",
    "AERON_CUBICCONGESTIONCONTROL_INITIALRTT": "aeron.CubicCongestionControl.initialRtt",
    "AERON_CUBICCONGESTIONCONTROL_MEASURERTT": "aeron.CubicCongestionControl.measureRtt",
    "AERON_CUBICCONGESTIONCONTROL_TCPMODE": "aeron.CubicCongestionControl.tcpMode",
    "AERON_MULTICAST_FLOWCONTROL_SUPPLIER": "aeron.multicast.FlowControl.supplier",
    "AERON_UNICAST_FLOWCONTROL_SUPPLIER": "aeron.unicast.FlowControl.supplier",
    "AERON_SOCKET_SO_RCVBUF": "aeron.socket.so_rcvbuf",
    "AERON_SOCKET_SO_SNDBUF": "aeron.socket.so_sndbuf",
}
ONLY_IN_JAVA = re.compile(r"AERON_(UNICAST|MULTICAST)_FLOW_CONTROL_RRWM|AERON_EVENT_LOG_RENDER_DATA")
ONLY_IN_C = re.compile(
    r".*_CPU_AFFINITY|.*_INIT_ARGS|.*_CPUSET_.*|AERON_DRIVER_CONNECT|AERON_DRIVER_NAME_RESOLVER_THRESHOLD"
    r"|AERON_NAME_RESOLVER_SUPPLIER|.*_VECTOR_CAPACITY|.*_MAX_MESSAGES_PER_SEND|AERON_UDP_CHANNEL_.*"
)
# The socket buffers of a default installation, so that the table is the same on every system.
BUFFERS = BufferLimits(default_send=212992, max_send=212992, default_receive=212992, max_receive=212992)
NUMBER = re.compile(r"-?\d+")


class Difference(NamedTuple):
    """Cases in which this driver's answer intentionally differs from C's; ``pattern`` matches setting, space and value."""

    pattern: str
    reason: str


DIFFERENCES = (
    Difference(
        r"\S+ (x|maybe|\S+x|-1s?|1\.5k?|1kb|5m|5%|0x1000|FRAME_IN,x)",
        "what C cannot read, it replaces by the default with a warning",
    ),
    Difference(r"\S+ (1\.5s|1min)", "fractions and long units of durations are read here"),
    Difference(r"\S+ (TRUE|yes|no)", "truth values are read in any case, and yes and no are two"),
    Difference(
        r"AERON_(THREADING_MODE|RECEIVER_GROUP_CONSIDERATION|DRIVER_TERMINATION_VALIDATOR) \S+",
        "words are read in any case; C takes the default, or false, for another word",
    ),
    Difference(r"\S+_IDLE_STRATEGY org\.agrona\.\S+", "class names of Java are read here"),
    Difference(
        r"\S+_INIT_ARGS (\S+ \S+=(spin|yield|noop)|1-2-5us-4us .*)",
        "arguments that a strategy does not take are refused here",
    ),
    Difference(r"\S+_CPU_AFFINITY 300", "C binds the thread to processor 255"),
    Difference(
        r"AERON_DRIVER_CPUSET_AFFINITY \S+", "needs control groups of version 2, and is refused at start without"
    ),
    Difference(
        r"AERON_PUBLICATION_RESERVED_SESSION_ID_LOW (2147483647|10 .*)",
        "a range that ends before it begins is refused, as in Java",
    ),
    Difference(
        r"\S+ (-?2147483648|-2147483649|9223372036854775807)", "numbers beyond 32 bits are brought to the limit here"
    ),
    Difference(
        r"AERON_(SEND_TO_STATUS_POLL_RATIO|NAK_MULTICAST_GROUP_SIZE|SOCKET_MULTICAST_TTL) \S+",
        "C reads a negative number as a large one, and keeps 8 bits of the poll ratio",
    ),
    Difference(r"AERON_DRIVER_TIMEOUT .*", "C reads the digits as milliseconds, whatever unit follows"),
    Difference(r"AERON_UDP_CHANNEL_\S+ .*", "in C each of these has other requirements"),
    Difference(r"\S+ ", "an empty value counts as not set here"),
)


class Case(NamedTuple):
    """One line of the table. ``value`` can set other settings too: ``5s AERON_TIMER_INTERVAL=5s``."""

    setting: str
    value: str
    c: str
    java: str
    here: str

    @property
    def is_as_in_c(self) -> bool:
        """Return whether this driver's answer matches C's, as far as C shows it."""
        return self.c in (ABSENT, self.here) or (self.c == ACCEPTED and self.here != REFUSED)

    @property
    def environment(self) -> dict[str, str]:
        value, *others = re.split(r" (?=AERON_)", self.value)
        return {self.setting: value} | dict(other.split("=", 1) for other in others)


def recorded() -> list[Case]:
    """Return the rows of the table."""
    lines = VECTORS.read_text(encoding="utf-8").splitlines()
    return [Case(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def record(column: str, answers: Sequence[str]) -> None:
    """Write a driver's answers into the table; keep the table's comments."""
    lines = VECTORS.read_text(encoding="utf-8").splitlines()
    cases = iter(zip(recorded(), answers, strict=True))
    for number, line in enumerate(lines):
        if line and not line.startswith("#"):
            case, answer = next(cases)
            lines[number] = "\t".join(case._replace(**{column: answer}))
    VECTORS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def answer_here(case: Case) -> str:
    """Return how this driver's settings interpret a case."""
    try:
        settings = DriverSettings.load(environ=case.environment)
        cnc_layout(settings)
        check_buffers(settings, BUFFERS)
        incoming_loss(settings)
        outgoing_loss(settings)
        chosen_events(settings.event_log, setting="AERON_EVENT_LOG")
    except ConfigurationError:
        return REFUSED
    explanation = settings.explain(case.setting)
    value = getattr(settings, explanation.name)
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, Enum):
        return str(value.value)
    return str(value) if isinstance(value, int) else ACCEPTED


def answers_of_c(binary: str, cases: Sequence[Case]) -> list[str]:
    """Return how the C driver interprets each case, with one process per case."""
    return [ABSENT if ONLY_IN_JAVA.fullmatch(case.setting) else _answer_of_c(binary, case) for case in cases]


def _answer_of_c(binary: str, case: Case) -> str:
    directory = tempfile.mkdtemp(prefix="mainstem-settings-", dir="/dev/shm")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AERON_")}
    environment |= {"AERON_DIR": f"{directory}/aeron", "AERON_PRINT_CONFIGURATION": "true"}
    environment |= case.environment
    process = subprocess.Popen(
        [binary], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="latin-1"
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line == "}\n":
                break
        if not lines or lines[-1] != "}":
            return REFUSED
        printed = dict(line.strip().split("=", 1) for line in lines if "=" in line)
        return _shown(case, printed, C_KEYS, _short_name(case), f"{_short_name(case)}_ns")
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def answers_of_java(cases: Sequence[Case]) -> list[str]:
    """Return how the Java driver interprets each case, one after the other in one process."""
    directory = tempfile.mkdtemp(prefix="mainstem-settings-", dir="/dev/shm")
    process = java.start("SettingAnswers", stderr=subprocess.DEVNULL)
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    try:
        for case in cases:
            if ONLY_IN_C.fullmatch(case.setting):
                answers.append(ABSENT)
                continue
            settings = [
                f"{JAVA_NAMES.get(name) or name.lower().replace('_', '.')}={value}"
                for name, value in case.environment.items()
            ]
            process.stdin.write("\t".join([f"{directory}/aeron", *settings]) + "\n")
            process.stdin.flush()
            words: list[str] = []
            while words[:1] != ["answer"]:
                line = process.stdout.readline()
                assert line, f"Java ended at {case}"
                words = line.rstrip("\n").split("\t")
            if words[1] == REFUSED:
                answers.append(REFUSED)
                continue
            printed = dict(word.strip().split("=", 1) for word in words if "=" in word)
            first, *rest = _short_name(case).split("_")
            camel = first + "".join(map(str.capitalize, rest))
            answers.append(_shown(case, printed, JAVA_KEYS, camel, f"{camel}Ns"))
    finally:
        process.kill()
        process.communicate()
        shutil.rmtree(directory, ignore_errors=True)
    return answers


def _short_name(case: Case) -> str:
    return case.setting.removeprefix("AERON_").lower()


def _shown(case: Case, printed: dict[str, str], keys: dict[str, str], *names: str) -> str:
    short = _short_name(case)
    shown = next((printed[name] for name in (keys.get(short, ""), *names) if name in printed), ACCEPTED)
    shown = {"true": "1", "false": "0"}.get(shown, shown)
    if short == "receiver_group_consideration":
        return {"0": "false", "1": "true", "2": "infer"}.get(shown, shown.lower())
    if short == "threading_mode":
        return shown
    if not NUMBER.fullmatch(shown):
        return ACCEPTED
    return f"{shown}000000" if short == "driver_timeout" else shown
