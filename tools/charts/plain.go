package charts

import (
	"fmt"
	"maps"
	"strings"

	"sigs.k8s.io/yaml"
)

// labelAllow marks the opt-in objects of an agent with the name of the opt-in.
const labelAllow = "agent.atoll.dev/allow"

// blankValues are the values that users of the plain manifest fill in.
var blankValues = map[string]any{
	"name": "fill-in-the-name", "hub": "fill-in-the-hub", "token": "fill-in-the-token",
	"caHash": "sha256:" + strings.Repeat("f", 64),
}

// RenderAgentManifests returns the plain manifests of the agent from the chart in the directory, by the
// names of their files: the default objects with the Secret to fill in, the objects of each
// opt-in, and the AgentPolicy.
func RenderAgentManifests(dir string) (map[string]string, error) {
	values := map[string]any{"createNamespace": true, "join": blankValues}
	r := Release{Chart: dir, Name: "atoll-agent", Namespace: "atoll-system", Values: values}
	text, err := RenderManifests(r)
	if err != nil {
		return nil, err
	}
	manifest, policy := "", ""
	for document := range strings.SplitSeq(text, "---\n") {
		switch {
		case document == "":
		case strings.Contains(document, "\nkind: AgentPolicy\n"):
			if policy, err = withoutHelmAnnotations(document); err != nil {
				return nil, err
			}
		default:
			manifest += "---\n" + document
		}
	}
	for _, blank := range blankValues {
		manifest = strings.ReplaceAll(manifest, blank.(string), "")
	}
	values["rbac"] = map[string]any{"allow": []any{"crds", "rbac", "impersonate", "all-kinds", "cluster-admin"}}
	all, err := RenderManifests(r)
	if err != nil {
		return nil, err
	}
	optIns := ""
	for document := range strings.SplitSeq(all, "---\n") {
		if strings.Contains(document, labelAllow) {
			optIns += "---\n" + document
		}
	}
	const made = "# Made of the chart in deploy/charts/atoll-agent by `make generate`: edit that.\n"
	return map[string]string{
		"agent.yaml": fmt.Sprintf(`# The agent of one member cluster. "atoll join" applies this with the Secret filled in; by
# hand: fill the Secret in, "kubectl apply -f agent.yaml", and create agent-policy.yaml.
%s%s`, made, manifest),
		"agent-allow.yaml": fmt.Sprintf(`# What "atoll join --allow" lets the agent of a member do beyond agent.yaml.
%s%s`, made, optIns),
		"agent-policy.yaml": fmt.Sprintf(`# The default limit of the hub in a member. "atoll join" creates it where no AgentPolicy exists;
# by hand: "kubectl create -f agent-policy.yaml", which never overwrites one.
%s---
%s`, made, policy),
	}, nil
}

// withoutHelmAnnotations returns the object without the annotations that are for Helm.
func withoutHelmAnnotations(document string) (string, error) {
	objects, err := ParseObjects(document)
	if err != nil || len(objects) != 1 {
		return "", fmt.Errorf("want one object, have %d: %w", len(objects), err)
	}
	kept := objects[0].GetAnnotations()
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, "helm.sh/") })
	if len(kept) == 0 {
		kept = nil // so that no empty field is written
	}
	objects[0].SetAnnotations(kept)
	text, err := yaml.Marshal(objects[0].Object)
	return string(text), err
}
