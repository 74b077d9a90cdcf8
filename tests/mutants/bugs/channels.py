"""Bugs in bymux, Jmux and Aqueduct: credit, rations, tickets, cascades, numbers."""

from __future__ import annotations

from tests.mutants.bug import Bug, Simulator, Suite

BUGS = (
    Bug(
        name="bymux: credit is lost after 2**20 bytes",
        harm="a stream stops after a megabyte",
        file="bymux/engine.py",
        old="        stream.send_credit = credit + amount if amount else INFINITE\n",
        new="        stream.send_credit = credit + (amount if stream.sent < 1 << 20 else 0) if amount else INFINITE\n",
        finder=Simulator(scenarios=("bymux",)),
    ),
    Bug(
        name="Jmux: a ration is counted twice",
        harm="a peer that keeps to its ration is thrown out",
        file="jmux/engine.py",
        old="                session.inbound -= value\n",
        new="                session.inbound -= 2 * value\n",
        finder=Simulator(scenarios=("jmux",)),
    ),
    Bug(
        name="Aqueduct: a ticket is used twice",
        harm="a copy of a client's first flight is carried out again",
        file="aqueduct/quic/tickets.py",
        old='                "DELETE FROM entry WHERE id = (SELECT max(id) FROM entry WHERE name = ?) RETURNING value", (name,)\n',
        new='                "SELECT value FROM entry WHERE id = (SELECT max(id) FROM entry WHERE name = ?)", (name,)\n',
        finder=Suite(selection=("tests/unit/aqueduct/quic/test_tickets.py",)),
    ),
    Bug(
        name="Aqueduct: a cascade misses one half",
        harm="a channel whose creation was lost waits for ever",
        file="aqueduct/send.py",
        old="            self._channels.lost.extend(entry.links)\n",
        new="            self._channels.lost.extend(entry.links[1:])\n",
        finder=Simulator(scenarios=("aqueduct",)),
    ),
    Bug(
        name="Aqueduct: an acknowledgment makes nothing reachable",
        harm="links are kept for as long as the connection lives",
        file="aqueduct/send.py",
        old="                for half in entry.links:\n",
        new="                for half in entry.links[1:]:\n",
        finder=Simulator(scenarios=("aqueduct",)),
    ),
    Bug(
        name="Aqueduct: a lost connection ends its receivers in order",
        harm="a reader takes what arrived before the loss for everything",
        file="aqueduct/state.py",
        old="        RECEIVER_TABLE[_receiver_state, _J.DISCONNECT] = _R.DISCONNECTED\n",
        new="        RECEIVER_TABLE[_receiver_state, _J.DISCONNECT] = _R.FINISHED\n",
        finder=Simulator(scenarios=("aqueduct",)),
    ),
)
