package corpus

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/lab/corpus/compare"
)

func TestReport(t *testing.T) {
	expected := []compare.ExpectedDifference{
		{Manifest: "a", Path: "spec.x", Reason: "by design"},
		{Manifest: "a", Path: "spec.y", Reason: "it was so"},
		{Manifest: "other", Path: "spec.z", Reason: "it does not run"},
	}
	known := compare.Difference{Check: compare.Objects, Cluster: "member1", Object: "A a", Path: "spec.x", Control: "1", Atoll: "2"}
	bad := compare.Difference{Check: compare.Status, Cluster: "hub", Object: "A a\x1b[31m", Path: "status.n", Atoll: "\u202e"}
	for name, c := range map[string]struct {
		found []compare.Difference
		err   error
		fails string // part of the error; empty for none
		rows  []string
	}{
		"a difference without a reason": {[]compare.Difference{known, bad}, nil, "1 manifest with unexpected differences; 1 expected differences that no longer occur", []string{
			"a  yes expected NO yes yes 1, and 1 expected", "expected: by design", `A a\x1b[31m: status.n`, `\\u202e`, "no longer occurs: manifest a, object , path spec.y",
		}},
		"an error": {nil, errors.New("no\nway"), "1 manifest not run to the end", []string{"a yes yes yes yes yes error", `error: no\x0away`}},
		"nothing":  {nil, nil, "2 expected differences that no longer occur", []string{"a yes yes yes yes yes none"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReport(expected)
			r.addResult(newResult("a", c.found, c.err, expected, time.Second))
			if err := r.failureError(); err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("the failure is %v, want %q", err, c.fails)
			}
			var out bytes.Buffer
			if err := r.writeTable(&out); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(strings.Fields(out.String()), " ")
			for _, row := range c.rows {
				if !strings.Contains(text, strings.Join(strings.Fields(row), " ")) {
					t.Errorf("the table lacks %q:\n%s", row, out.String())
				}
			}
			if strings.ContainsAny(out.String(), "\x1b\u202e") {
				t.Errorf("the table has characters that change a terminal: %q", out.String())
			}
		})
	}
	r := newReport(expected[:1])
	r.addResult(newResult("a", []compare.Difference{known}, nil, expected[:1], time.Second))
	if err := r.failureError(); err != nil {
		t.Errorf("all is expected: %v", err)
	}
}

func TestNamesThatAClusterGenerates(t *testing.T) {
	object := func(kind, prefix string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
		o.SetGenerateName(prefix)
		return o
	}
	hub, control := &cluster{name: hubName}, &cluster{name: controlName}
	tn := &manifestTestRun{
		installation: &installation{hub: hub, control: control, members: []*cluster{{name: "member1"}}}, dir: writeFiles(t, map[string]string{"hub/x": "", "control/x": ""}),
		objects: []*unstructured.Unstructured{object("Job", "run-"), object("Job", "run-"), object("ConfigMap", "note-")}, names: map[string][]string{},
	}
	hubAnswer := compare.NewCommandAnswer(0, "job.batch/run-aaaaa created\njob.batch/run-bbbbb created\nconfigmap/note-ccccc created")
	controlAnswer := compare.NewCommandAnswer(1, "job.batch/run-ddddd created\njob.batch/run-eeeee created\nError: no")
	if got := tn.hideGeneratedNames(hubAnswer).Lines; !slices.Equal(got, []string{"job.batch/run-* created", "job.batch/run-* created", "configmap/note-* created"}) {
		t.Errorf("the answer is %q", got)
	}
	if err := tn.recordGeneratedNames(hubAnswer, controlAnswer); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{hubName: {"run-aaaaa", "run-bbbbb", "note-ccccc"}, "member1": {"run-aaaaa", "run-bbbbb", "note-ccccc"}, controlName: {"run-ddddd", "run-eeeee", ""}} {
		if !slices.Equal(tn.names[name], want) {
			t.Errorf("%s has %q, want %q", name, tn.names[name], want)
		}
	}
	if got := tn.objectInCluster(hub, 1); got.GetName() != "run-bbbbb" || got.GetGenerateName() != "" || tn.objects[1].GetName() != "" {
		t.Errorf("the object is %v", got)
	}
}

func TestOnlyWhatATurnLeftIsRemoved(t *testing.T) {
	in := func(kind, namespace, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"kind": kind}}
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	tn := &manifestTestRun{objects: []*unstructured.Unstructured{in("Namespace", "", "own"), in("ConfigMap", "shop", "a"), in("ClusterRole", "", "role")}}
	namespaces := map[string]bool{"shop": true}
	atollOwned := storedObject{kind: "Bundle", namespace: "shop", name: "b"}
	atollOwned.resource.Group = "engine.atoll.dev"
	for o, want := range map[storedObject]bool{
		{kind: "Namespace", name: "own"}:                true,
		{kind: "Namespace", name: "shop"}:               true,
		{kind: "Namespace", name: "other"}:              false,
		{kind: "Secret", namespace: "shop", name: "x"}:  true,
		{kind: "Secret", namespace: "other", name: "a"}: false,
		{kind: "ClusterRole", name: "role"}:             true,
		{kind: "ClusterRole", name: "admin"}:            false,
		{kind: "PersistentVolume", name: "pvc-1"}:       true,
		{kind: "PersistentVolume", name: "disk"}:        false,
		atollOwned:                                      false,
	} {
		if got := tn.isOfManifest(o, namespaces); got != want {
			t.Errorf("%v: own is %t, want %t", o, got, want)
		}
	}
}
