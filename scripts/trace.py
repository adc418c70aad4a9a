#!/usr/bin/env python3
"""Turns a trace of protocol events (protocol/README.md has the format) into the TLA+ module TraceData.

usage: trace.py TRACE.jsonl >TraceData.tla
"""

import json
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


def read(path):
    events = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            event = json.loads(line)
            unknown = sorted(set(event) - set(FIELDS) - {"process"})
            if unknown or not event.get("action"):
                sys.exit(f"{path}:{number}: not an event: {', '.join(unknown) or 'no action'}")
            for name, kind in FIELDS.items():
                if not isinstance(event.get(name, kind), type(kind)):
                    sys.exit(f"{path}:{number}: '{name}' has the wrong type")
            event = {name: event.get(name, none) for name, none in FIELDS.items()}
            if event["action"] in ("Intend", "Release") and event["participant"]:
                event["participants"], event["participant"] = [event["participant"]], ""
            events.append(event)
    if not events:
        sys.exit(f"{path}: no events")
    return events


def kind_of(participant, path):
    name = participant.split(" ", 1)[0]
    if name not in KINDS:
        sys.exit(f"{path}: unknown participant '{participant}'")
    return KINDS[name]


def literal(value):
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value)
    return "{" + ", ".join(literal(item) for item in sorted(value)) + "}"


def function(pairs, domain):
    """A function over a set of strings; the empty one over the empty set."""
    if not pairs:
        return "[x \\in {} |-> x]"
    cases = " [] ".join(f"x = {literal(key)} -> {literal(value)}" for key, value in sorted(pairs.items()))
    return f"[x \\in {domain} |-> CASE {cases}]"


def main():
    path = sys.argv[1]
    events = read(path)
    actions = {event["action"] for event in events}

    # Numbers start at 1 in the model; the Domain was clean before the trace began.
    first = {}
    for event in events:
        if event["action"] == "BeginGeneration":
            first.setdefault(event["domain"], event["generation"] - 1)
    for event in events:
        if event["generation"]:
            event["generation"] -= first.get(event["domain"], 0)
            if event["generation"] < 1:
                sys.exit(f"{path}: an event of a generation before the trace")

    def named(field):
        return {event[field] for event in events if event[field]}

    domains, clients = named("domain"), named("client")
    domain_of = {event["client"]: event["domain"] for event in events if event["client"] and event["domain"]}
    for client in clients - set(domain_of):
        sys.exit(f"{path}: client '{client}' is in no Domain")
    owners = {e["preparation"]: e["domain"] for e in events if e["action"] == "BeginPreparation"}
    for event in events:
        # Events of storage name no Domain; the replay asks every event for one.
        event["domain"] = event["domain"] or owners.get(event["preparation"]) or sorted(domains)[0]

    participants = named("participant") | {p for event in events for p in event["participants"]}
    kinds = {kind: {p for p in participants if kind_of(p, path) == kind}
             for kind in ("Directories", "Sockets", "Mounts", "Helpers")}
    refused = {p for event in events if event["action"] in ("Refuse", "BeginFails") for p in event["participants"]}
    rules = {e["request"]: {"AutoApprove": "Allow", "AutoDeny": "Deny"}[e["action"]]
             for e in events if e["action"] in ("AutoApprove", "AutoDeny")}
    accepted = [e for e in events if e["action"] == "AcceptEscalation"]
    rule = {e["command"]: rules.get(e["request"], "Ask") for e in accepted}
    made = {e["artifact"] for e in events if e["action"] == "BeginPreparation"}
    faults = {"Client", "Coordinator", "Supervisor", "Helper", "Runsc", "Exec", "Step"}
    faults |= {"Foreign"} if refused else set()
    faults |= {"Survivor"} if "KillProcess" in actions else set()
    survivors = {e["participant"] for e in events if e["action"] == "KillProcess"}
    generations = sum(event["action"] == "BeginGeneration" for event in events)

    sets = {
        "Domains": domains, "Clients": clients, "Requests": named("request"), "Commands": set(rule),
        "Artifacts": named("artifact"), "Preparations": named("preparation"),
        "ReadyArtifacts": named("artifact") - made, **kinds, "ForeignPlaces": refused, "Survivors": survivors,
        "Faults": faults, "Features": {"Prepare", "Collect", "Reset", "Down", "PreparedSession", "Escalate", "Patience"},
    }
    print("------------------------------ MODULE TraceData ------------------------------")
    print("EXTENDS Integers\n")
    for name, members in sets.items():
        print(f"Trace{name} == {literal(members)}")
    print(f"TraceDomainOf == {function(domain_of, 'TraceClients')}")
    print(f"TraceRule == {function(rule, 'TraceCommands')}")
    print(f"TraceMaxGeneration == {max(generations, 1)}")
    print("TraceMaxFaults == 99")
    print(f"TracedActions == {literal(actions)}")
    print("Trace == <<")
    for index, event in enumerate(events):
        event["participants"] = set(event["participants"])
        fields = ", ".join(f"{name} |-> {literal(value)}" for name, value in event.items())
        print(f"    [{fields}]" + ("," if index + 1 < len(events) else ""))
    print(">>")
    print("==============================================================================")


if __name__ == "__main__":
    main()
