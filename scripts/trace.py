#!/usr/bin/env python3
"""Turns traces of protocol events (protocol/README.md has the format) into TLA+ modules TraceData.

usage: trace.py DIRECTORY TRACE.jsonl…

Traces of generations with the same participants share a module, DIRECTORY/NUMBER/TraceData.tla, so that they are
replayed together. For each trace a line says which module it is in, at which place, and how many events it has.
"""

import json
import pathlib
import sys

# Which kind of participant a name is; a name may carry a path, as in "AnchorMount /root/.cache".
KINDS = {
    "RuntimeDirectory": "Directories", "Scratch": "Directories", "Mailbox": "Directories",
    "Socket": "Sockets",
    "RootMount": "Mounts", "AnchorMount": "Mounts", "WorkspaceMount": "Mounts", "VolumeMount": "Mounts",
    "Helper": "Helpers", "GitRouter": "Helpers",
    "Lease": None, "RuntimeSupervisor": None, "NetworkNamespace": None, "Runsc": None, "Publication": None,
}
FIELDS = {
    "action": "", "domain": "", "generation": 0, "client": "", "participant": "", "participants": [],
    "artifact": "", "preparation": "", "request": "", "command": "", "verdict": "",
}
# What is in a line and not in the model: a session stands for its client, a process is for people.
ASIDE = {"session": "", "process": 0}
RULES = {"AutoApprove": "Allow", "AutoDeny": "Deny"}


def read(path):
    """Reads events and gives each session's its client."""
    events, client_of = [], {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            event = json.loads(line)
            known = {**FIELDS, **ASIDE}
            unknown = sorted(set(event) - set(known))
            if unknown or not event.get("action"):
                sys.exit(f"{path}:{number}: not an event: {', '.join(unknown) or 'no action'}")
            for name, kind in FIELDS.items():
                if not isinstance(event.get(name, kind), type(kind)):
                    sys.exit(f"{path}:{number}: '{name}' has the wrong type")
            session = event.get("session", "")
            if session and event.get("client"):
                client_of[session] = event["client"]
            event = {name: event.get(name, none) for name, none in FIELDS.items()}
            event["client"] = event["client"] or client_of.get(session, "")
            if event["action"] in ("Intend", "Release") and event["participant"]:
                event["participants"], event["participant"] = [event["participant"]], ""
            events.append(event)
    if not events:
        sys.exit(f"{path}: no events")
    return events


class Trace:
    """A trace whose names are the model's: every trace begins to count at 1, so that traces can share a module."""

    def __init__(self, path):
        self.path = path
        self.events = events = read(path)
        self.actions = {event["action"] for event in events}
        self.complete()
        self.count_generations()
        self.names = {name: set() for name in ("domain", "client", "artifact", "preparation", "request", "command")}
        made = {e["artifact"] for e in events if e["action"] == "BeginPreparation"}
        rules = {e["request"]: RULES[e["action"]] for e in events if e["action"] in RULES}
        rule = {e["command"]: rules.get(e["request"], "Ask") for e in events if e["action"] == "AcceptEscalation"}
        kinds = {"artifact": lambda name: "made" if name in made else "ready",
                 "command": lambda name: rule.get(name, "Ask")}
        for field in self.names:
            self.rename(field, kinds.get(field, lambda _, field=field: field))
        self.domain_of = {}
        for event in events:
            if event["client"]:
                self.domain_of.setdefault(event["client"], event["domain"])
        self.participants = {e["participant"] for e in events if e["participant"]}
        self.participants |= {p for e in events for p in e["participants"]}
        for participant in self.participants:
            if participant.split(" ", 1)[0] not in KINDS:
                sys.exit(f"{path}: unknown participant '{participant}'")
        self.strangers = {p for e in events if e["action"] in ("Refuse", "BeginFails") for p in e["participants"]}
        self.survivors = {e["participant"] for e in events if e["action"] == "KillProcess"}

    def complete(self):
        """Adds what an event leaves out because another one has it."""
        domains = sorted({e["domain"] for e in self.events if e["domain"]})
        if not domains:
            sys.exit(f"{self.path}: no Domain")
        owners = {e["preparation"]: e["domain"] for e in self.events if e["action"] == "BeginPreparation"}
        became = {e["preparation"]: e["artifact"] for e in self.events if e["artifact"] and e["preparation"]}
        for event in self.events:
            if event["action"] == "BeginPreparation":
                # One that was never sealed became nothing that has a name.
                event["artifact"] = event["artifact"] or became.get(event["preparation"], "unknown")
            # The replay asks every event for a Domain.
            event["domain"] = event["domain"] or owners.get(event["preparation"]) or domains[0]

    def count_generations(self):
        first = {}
        for event in self.events:
            if event["action"] == "BeginGeneration":
                first.setdefault(event["domain"], event["generation"] - 1)
        for event in self.events:
            if event["generation"]:
                # One of a generation before the trace is none that the model has.
                counted = event["generation"] - first.get(event["domain"], 0)
                event["generation"] = counted if counted > 0 else -1
        self.generations = max([event["generation"] for event in self.events] + [1])

    def rename(self, field, kind):
        counts, names = {}, {}
        for event in self.events:
            name = event[field]
            if not name:
                continue
            if name not in names:
                prefix = kind(name)
                counts[prefix] = counts.get(prefix, 0) + 1
                names[name] = f"{prefix}-{counts[prefix]}"
            event[field] = names[name]
        self.names[field] = set(names.values())


def together(traces):
    """Groups traces that can share a module: a generation that begins has all of its participants."""
    groups = []
    for trace in sorted(traces, key=lambda trace: "Begun" not in trace.actions):
        for group in groups:
            same = group[0].participants == trace.participants
            fits = "Begun" not in trace.actions and group[0].participants >= trace.participants
            # A client belongs to one Domain.
            agree = all(other.domain_of.get(c, d) == d for other in group for c, d in trace.domain_of.items())
            if (same or fits) and agree:
                group.append(trace)
                break
        else:
            groups.append([trace])
    return groups


def literal(value):
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return "{" + ", ".join(literal(item) for item in sorted(value)) + "}"


def record(fields):
    return "[" + ", ".join(f"{name} |-> {value}" for name, value in fields.items()) + "]"


def function(pairs, domain):
    """A function over a set of strings; the empty one over the empty set."""
    if not pairs:
        return "[x \\in {} |-> x]"
    cases = " [] ".join(f"x = {literal(key)} -> {literal(value)}" for key, value in sorted(pairs.items()))
    return f"[x \\in {domain} |-> CASE {cases}]"


def module(traces):
    def union(of):
        return set().union(*(of(trace) for trace in traces))

    names = {field: union(lambda trace: trace.names[field]) for field in traces[0].names}
    kinds = {kind: {p for p in traces[0].participants if KINDS[p.split(" ", 1)[0]] == kind}
             for kind in ("Directories", "Sockets", "Mounts", "Helpers")}
    strangers, survivors = union(lambda trace: trace.strangers), union(lambda trace: trace.survivors)
    faults = {"Client", "Coordinator", "Supervisor", "Helper", "Runsc", "Exec", "Step"}
    faults |= ({"Foreign"} if strangers else set()) | ({"Survivor"} if survivors else set())
    sets = {
        "Domains": names["domain"], "Clients": names["client"], "Requests": names["request"],
        "Commands": names["command"], "Artifacts": names["artifact"], "Preparations": names["preparation"],
        "ReadyArtifacts": {a for a in names["artifact"] if a.startswith("ready")}, **kinds,
        "ForeignPlaces": strangers, "Survivors": survivors, "Faults": faults,
        "Features": {"Prepare", "Collect", "Reset", "Down", "PreparedSession", "Escalate", "Patience"},
    }
    domain_of = {client: domain for trace in traces for client, domain in trace.domain_of.items()}
    yield "------------------------------ MODULE TraceData ------------------------------"
    yield "EXTENDS Integers\n"
    for name, members in sets.items():
        yield f"Trace{name} == {literal(members)}"
    yield f"TraceDomainOf == {function(domain_of, 'TraceClients')}"
    yield f"TraceRule == {function({k: k.split('-')[0] for k in names['command']}, 'TraceCommands')}"
    yield f"TraceMaxGeneration == {max(trace.generations for trace in traces)}"
    yield "TraceMaxFaults == 99"
    yield "Traces == <<"
    for place, trace in enumerate(traces, 1):
        yield f"  [actions |-> {literal(trace.actions)}, events |-> <<"
        for number, event in enumerate(trace.events, 1):
            fields = {name: literal(set(value) if name == "participants" else value) for name, value in event.items()}
            yield f"    {record(fields)}" + ("," if number < len(trace.events) else "")
        yield "  >>]" + ("," if place < len(traces) else "")
    yield ">>"
    yield "=============================================================================="


def main():
    directory = pathlib.Path(sys.argv[1])
    for number, traces in enumerate(together([Trace(path) for path in sys.argv[2:]]), 1):
        (directory / str(number)).mkdir(parents=True, exist_ok=True)
        (directory / str(number) / "TraceData.tla").write_text("\n".join(module(traces)) + "\n", encoding="utf-8")
        for place, trace in enumerate(traces, 1):
            print(number, place, len(trace.events), trace.path)


if __name__ == "__main__":
    main()
