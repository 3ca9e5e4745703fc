package charts

import (
	"fmt"
	"strings"
)

// labelAllow is on what an agent has beyond the default, with the name of the opt-in.
const labelAllow = "agent.atoll.dev/allow"

// blanks are values that have to be filled in where the plain manifest is used.
var blanks = map[string]any{
	"name": "fill-in-the-name", "hub": "fill-in-the-hub", "token": "fill-in-the-token",
	"caHash": "sha256:" + strings.Repeat("f", 64),
}

// Agent gives the plain manifests of the agent as the chart in the directory renders them:
// by default, with the Secret to be filled in, and what each opt-in adds.
func Agent(dir string) (manifest, optIns string, err error) {
	r := Release{Chart: dir, Name: "atoll-agent", Namespace: "atoll-system", Values: map[string]any{
		"createNamespace": true, "join": blanks,
	}}
	if manifest, err = Render(r); err != nil {
		return "", "", err
	}
	for _, blank := range blanks {
		manifest = strings.ReplaceAll(manifest, blank.(string), "")
	}
	r.Values["rbac"] = map[string]any{"allow": []any{"crds", "rbac", "impersonate", "all-kinds", "cluster-admin"}}
	all, err := Render(r)
	if err != nil {
		return "", "", err
	}
	for document := range strings.SplitSeq(all, "---\n") {
		if strings.Contains(document, labelAllow) {
			optIns += "---\n" + document
		}
	}
	const made = "# Made of the chart in deploy/charts/atoll-agent by `make generate`: edit that.\n"
	manifest = fmt.Sprintf(`# The agent of one member cluster. "atoll join" applies this with the Secret filled in; by
# hand: fill the Secret in and "kubectl apply -f agent.yaml".
%s%s`, made, manifest)
	optIns = fmt.Sprintf(`# What "atoll join --allow" lets the agent of a member do beyond agent.yaml.
%s%s`, made, optIns)
	return manifest, optIns, nil
}
