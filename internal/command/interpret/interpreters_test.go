package interpret

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const thing = `
apiVersion: ai.example/v1
kind: Trainer
metadata: {name: cats, namespace: shop, generation: 2}
spec: {workers: 4, data: pictures}
status: {phase: Running, ready: 3, noise: much}
`

const trainers = `
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: zebra}
spec:
  target: {apiVersion: ai.example/v1, kinds: [Trainer]}
  health: {cel: "'Degraded'"}
  replicas: {cel: "{'replicas': object.spec.workers, 'requirements': {'resourceRequest': {'cpu': '0.5'}, 'nodeClaim': {'tolerations': [{'key': 'gpu'}]}}}"}
---
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: yak}
spec:
  target: {apiVersion: ai.example/v1, kinds: [Trainer]}
  health: {cel: "'Suspended'"}
---
apiVersion: atoll.dev/v1alpha1
kind: ResourceInterpreter
metadata: {name: all}
spec:
  target: {group: "*", kinds: ["*"]}
  health: {cel: "'Progressing'"}
  revise: {cel: "{'spec': {'workers': replicas}}"}
  status: {cel: "{'ready': object.status.ready}"}
  aggregate: {cel: "{'ready': items.map(i, i.status.ready), 'seen': items.map(i, i.applied)}"}
`

// The spec of an interpreter of Trainers.
func interpreterYAML(spec string) string {
	return "apiVersion: atoll.dev/v1alpha1\nkind: ResourceInterpreter\nmetadata: {name: one}\nspec: {target: {apiVersion: ai.example/v1, kinds: [Trainer]}, " + spec + "}\n"
}

// The command prints the answers of a hub with the file, and of its agents.
func TestWith(t *testing.T) {
	for name, tc := range map[string]struct {
		object, with, items string
		flags               []string
		want                string
	}{
		"each question goes to the script for the kind": {with: trainers, flags: []string{"--replicas", "7"}, want: `{
			"replicas": 4, "requirements": {"cpu": "500m", "nodeClaim": {"tolerations": [{"key": "gpu"}]}},
			"revised": {"apiVersion": "ai.example/v1", "kind": "Trainer", "metadata": {"generation": 2, "name": "cats", "namespace": "shop"},
				"spec": {"data": "pictures", "workers": 7}, "status": {"noise": "much", "phase": "Running", "ready": 3}},
			"health": {"status": "Suspended", "reason": "Interpreted"}, "status": {"ready": 3}}`},
		"the last of a name is there": {with: interpreterYAML("health: {cel: \"'Degraded'\"}") + "---\n" + interpreterYAML("health: {cel: \"'Suspended'\"}"), flags: []string{"--op", "health"},
			want: `{"health": {"status": "Suspended", "reason": "Interpreted"}}`},
		"what is joined went through what agents report": {with: trainers, flags: []string{"--op", "aggregated"},
			items: "[{cluster: b, status: {ready: 1, noise: x}}, {cluster: a, status: {ready: 2}, stale: true}, {cluster: c, away: true, status: {ready: 5}}, {cluster: d}]",
			want:  `{"aggregated": {"ready": [2, 1], "seen": [false, true]}}`},
		"an unjoined status has no effect": {with: interpreterYAML("status: {cel: \"{'sum': 1}\"}"), flags: []string{"--op", "status"}, want: `{}`},
		"a health that fails is Unknown": {with: interpreterYAML("health: {cel: object.status.nothing}"), flags: []string{"--op", "health"},
			want: `{"health": {"status": "Unknown", "reason": "InterpreterFailed", "message": "DIR/with: one: spec.health.cel: no such key: nothing"}}`},
		"so is that of an object whose status fails": {with: interpreterYAML("status: {cel: object.status.nothing}"), flags: []string{"--op", "health"},
			want: `{"health": {"status": "Unknown", "reason": "InterpreterFailed", "message": "DIR/with: one: spec.status.cel: no such key: nothing"}}`},
		"a status that fails by itself": {with: interpreterYAML("status: {cel: object.status.nothing}"), flags: []string{"--op", "status"},
			want: "error: DIR/with: one: spec.status.cel: no such key: nothing"},
		"a template that fails is not sent": {with: interpreterYAML("replicas: {cel: object.spec.nothing}"), want: "error: DIR/with: one: spec.replicas.cel: no such key: nothing"},
		"what a hub does not follow": {with: interpreterYAML("dependencies: {cel: \"[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'other', 'name': 'x'}]\"}"),
			want: "error: ResourceInterpreter one: dependencies: ConfigMap x is in namespace \"other\""},
		"dependencies by labels": {with: interpreterYAML("dependencies: {cel: \"[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'labelSelector': {'matchLabels': {'a': 'b'}}}]\"}"), flags: []string{"--op", "dependencies"},
			want: `{"dependencies": [{"kind": "ConfigMap", "namespace": "shop", "labelSelector": {"matchLabels": {"a": "b"}}}]}`},
		"dependencies": {with: interpreterYAML("dependencies: {cel: \"[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'name': object.spec.data}]\"}"), flags: []string{"--op", "dependencies"},
			want: `{"dependencies": [{"kind": "ConfigMap", "namespace": "shop", "name": "pictures"}]}`},
		"scripts see no Secrets": {object: "{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: shop}}", with: trainers, flags: []string{"--op", "health"},
			want: `{"health": {"status": "Healthy"}}`},
		"an unanswered question is answered as without scripts": {object: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: x, namespace: shop}, spec: {replicas: 3}}",
			with: strings.ReplaceAll(interpreterYAML("health: {cel: 'true'}"), "apiVersion: ai.example/v1, kinds: [Trainer]", "group: '*', kinds: ['*']"), flags: []string{"--replicas", "2", "--op", "revised"},
			want: `{"revised": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x", "namespace": "shop"}, "spec": {"replicas": 2}}}`},
		"no script for the kind": {object: "{apiVersion: v1, kind: ConfigMap, metadata: {name: x, namespace: shop}}", with: interpreterYAML("health: {cel: 'true'}"),
			want: "error: --with DIR/with: no interpreter is for ConfigMap of v1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"with": tc.with, "object.yaml": tc.object, "items.yaml": tc.items}
			if tc.object == "" {
				files["object.yaml"] = thing
			}
			args := append([]string{"-f", filepath.Join(dir, "object.yaml"), "--with", filepath.Join(dir, "with"), "-o", "json"}, tc.flags...)
			if tc.items != "" {
				args = append(args, "--items", filepath.Join(dir, "items.yaml"))
			}
			for name, text := range files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			cmd := NewCommand()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetOut(&out)
			cmd.SetArgs(args)
			if err := cmd.Execute(); err != nil {
				out.Reset()
				out.WriteString("error: " + err.Error())
			}
			got, want := strings.ReplaceAll(out.String(), dir, "DIR"), tc.want
			if strings.HasPrefix(want, "{") {
				got, want = compactJSON(plainText(t, got)), compactJSON(plainText(t, want))
			}
			if !strings.HasPrefix(got, want) {
				t.Errorf("\n got %s\nwant %s", got, want)
			}
		})
	}
}

func plainText(t *testing.T, text string) (out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	return out
}

// A member whose controller states the generation in conditions alone is not behind, unless some
// of its conditions are older.
func TestItemsThatObserveInConditionsAlone(t *testing.T) {
	const gateway = "{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: edge, namespace: shop, generation: 4}, spec: {}}"
	condition := func(kind, observed string) string {
		return "{type: " + kind + ", status: 'True', reason: Fine, observedGeneration: " + observed + "}"
	}
	for name, tc := range map[string]struct {
		conditions string
		observed   float64
	}{
		"lower than the template's": {condition("Accepted", "2") + ", " + condition("Programmed", "2"), 4},
		"one is behind":             {condition("Accepted", "2") + ", " + condition("Programmed", "1"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"object.yaml": gateway, "items.yaml": "[{cluster: oslo, status: {conditions: [" + tc.conditions + "]}}]"} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			cmd := NewCommand()
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"-f", filepath.Join(dir, "object.yaml"), "--items", filepath.Join(dir, "items.yaml"), "--op", "aggregated", "-o", "json"})
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Aggregated struct {
					Conditions []struct{ ObservedGeneration float64 }
				}
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Aggregated.Conditions) == 0 {
				t.Fatalf("%v: %s", err, out.String())
			}
			if n := got.Aggregated.Conditions[0].ObservedGeneration; n != tc.observed {
				t.Errorf("the template's generation is %v, want %v", n, tc.observed)
			}
		})
	}
}
