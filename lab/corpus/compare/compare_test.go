package compare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// parse reads an object from YAML.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = json.Unmarshal(data, &o.Object)
	}
	if err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return o
}

// formatAll writes differences as "CLUSTER PATH: CONTROL -> ATOLL".
func formatAll(list []Difference) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s %s: %s -> %s", d.Cluster, d.Path, d.Control, d.Atoll))
	}
	return out
}

func expectDifferences(t *testing.T, got []Difference, want ...string) {
	t.Helper()
	if want == nil {
		want = []string{}
	}
	if formatted := formatAll(got); !slices.Equal(formatted, want) {
		t.Errorf("the differences are\n%s\nwant\n%s", strings.Join(formatted, "\n"), strings.Join(want, "\n"))
	}
}

func TestContentWithoutAssignedFields(t *testing.T) {
	for name, c := range map[string]struct {
		manifest, control, live string
		want                    []string
	}{
		"metadata of the server": {
			"{kind: ConfigMap}",
			"{kind: ConfigMap, metadata: {name: a, uid: x, resourceVersion: '1', creationTimestamp: t, generation: 1, managedFields: [{}], annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}}, data: {a: b}}",
			"{kind: ConfigMap, metadata: {name: a, uid: y, resourceVersion: '2', labels: {atoll.dev/managed: 'true', engine.atoll.dev/x: y}}, data: {a: b}, status: {}}",
			nil,
		},
		"a label of the lab stays": {
			"{kind: ConfigMap}", "{metadata: {labels: {lab.atoll.dev/x: v}}}", "{metadata: {}}",
			[]string{`m metadata.labels: {"lab.atoll.dev/x":"v"} -> `},
		},
		"addresses of a Service": {
			"{kind: Service}",
			"{kind: Service, spec: {clusterIP: 10.96.0.7, clusterIPs: [10.96.0.7], ports: [{port: 80, nodePort: 30001}]}}",
			"{kind: Service, spec: {clusterIP: 10.96.0.8, clusterIPs: [10.96.0.8], ports: [{port: 80, nodePort: 30002}]}}",
			nil,
		},
		"stated addresses of a Service": {
			"{kind: Service, spec: {clusterIP: None, ports: [{port: 80, nodePort: 30001}]}}",
			"{kind: Service, spec: {clusterIP: None, ports: [{port: 80, nodePort: 30001}]}}",
			"{kind: Service, spec: {clusterIP: 10.96.0.8, ports: [{port: 80, nodePort: 30002}]}}",
			[]string{"m spec.clusterIP: None -> 10.96.0.8", "m spec.ports[0].nodePort: 30001 -> 30002"},
		},
		"fields": {
			"{kind: A}",
			"{kind: A, spec: {a: 1, list: [1, {x: v}], only: [], same: {}, metadata: {labels: {example.com/a: b}}}}",
			"{kind: A, spec: {a: 2, list: [1, {x: z}], more: true, same: {}, metadata: {labels: {example.com/a: c}}}}",
			[]string{"m spec.a: 1 -> 2", "m spec.list[1].x: v -> z", "m spec.metadata.labels[example.com/a]: b -> c", "m spec.more:  -> true", "m spec.only: [] -> "},
		},
		"lists of other lengths": {
			"{kind: A}", "{kind: A, list: [1, 2]}", "{kind: A, list: [1]}",
			[]string{"m list: [1,2] -> [1]"},
		},
		"numbers of other types": {
			"{kind: A}", "{kind: A, n: 1}", "{kind: A, n: 1.0}", nil,
		},
		"the uid of a Job": {
			"{kind: Job}",
			"{kind: Job, spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: x}}, template: {metadata: {labels: {controller-uid: x, job-name: j}}}}}",
			"{kind: Job, spec: {selector: {matchLabels: {batch.kubernetes.io/controller-uid: y}}, template: {metadata: {labels: {controller-uid: y, job-name: j}}}}}",
			nil,
		},
		"tokens of a ServiceAccount": {
			"{kind: Secret}",
			"{kind: Secret, type: kubernetes.io/service-account-token, metadata: {annotations: {kubernetes.io/service-account.uid: x, kubernetes.io/service-account.name: a}}, data: {token: a, ca.crt: b, namespace: c}}",
			"{kind: Secret, type: kubernetes.io/service-account-token, metadata: {annotations: {kubernetes.io/service-account.uid: y, kubernetes.io/service-account.name: a}}, data: {token: d, ca.crt: e, namespace: f}}",
			[]string{"m data.namespace: c -> f"},
		},
		"volumes of pods": {
			"{kind: Pod}",
			"{kind: Pod, spec: {nodeName: n1, volumes: [{name: kube-api-access-abcde}], containers: [{volumeMounts: [{name: kube-api-access-abcde}]}]}}",
			"{kind: Pod, spec: {nodeName: n2, volumes: [{name: kube-api-access-fghij}], containers: [{volumeMounts: [{name: kube-api-access-fghij}]}]}}",
			nil,
		},
		"owners": {
			"{kind: A}", "{kind: A, metadata: {ownerReferences: [{name: a, uid: x}]}}", "{kind: A, metadata: {ownerReferences: [{name: b, uid: y}]}}",
			[]string{"m metadata.ownerReferences[0].name: a -> b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			manifest, control, live := parse(t, c.manifest), parse(t, c.control), parse(t, c.live)
			before := live.DeepCopy()
			expectDifferences(t, DiffContent("m", "A a", RemoveAssignedFields(control, manifest), RemoveAssignedFields(live, manifest)), c.want...)
			if fmt.Sprint(live.Object) != fmt.Sprint(before.Object) {
				t.Errorf("the live object was changed to %v", live.Object)
			}
		})
	}
}

func TestContentIsBounded(t *testing.T) {
	control, live := map[string]any{}, map[string]any{}
	for i := range 200 {
		control[fmt.Sprint("f", i)] = strings.Repeat("ä", 500)
		live[fmt.Sprint("f", i)] = int64(i)
	}
	got := DiffContent("m", "A a", control, live)
	if len(got) != maxFieldDifferences {
		t.Errorf("%d differences, want %d", len(got), maxFieldDifferences)
	}
	if v := got[0].Control; len(v) > maxValueBytes+30 || !strings.HasSuffix(v, "… (1000 bytes)") {
		t.Errorf("the value is %q", v)
	}
}

func TestStatuses(t *testing.T) {
	for name, c := range map[string]struct {
		control, hub string
		want         []string
	}{
		"texts and times do not count": {
			"{kind: Deployment, metadata: {generation: 2}, status: {observedGeneration: 2, replicas: 2, unavailableReplicas: 0, conditions: [{type: Available, status: 'True', reason: A, message: b, lastUpdateTime: t}, {type: Progressing, status: 'False'}]}}",
			"{kind: Deployment, metadata: {generation: 1}, status: {observedGeneration: 1, replicas: 2, conditions: [{type: Available, status: 'True', reason: C, message: d}]}}",
			nil,
		},
		"conditions and counts": {
			"{kind: Job, metadata: {generation: 1}, status: {succeeded: 3, active: 1, startTime: t, conditions: [{type: Complete, status: 'True'}]}}",
			"{kind: Job, metadata: {generation: 1}, status: {succeeded: 2, conditions: [{type: Failed, status: 'True'}]}}",
			[]string{"hub status.active: 1 -> ", "hub status.conditions[Complete]: True -> ", "hub status.conditions[Failed]:  -> True", "hub status.succeeded: 3 -> 2"},
		},
		"an old generation": {
			"{kind: A, metadata: {generation: 2}, status: {observedGeneration: 2}}",
			"{kind: A, metadata: {generation: 2}, status: {observedGeneration: 1}}",
			[]string{"hub status.observedGeneration: latest -> behind"},
		},
		"addresses are summed": {
			"{kind: Service, status: {loadBalancer: {ingress: [{ip: a}]}}}",
			"{kind: Service, status: {loadBalancer: {ingress: [{ip: b, hostname: m1}, {ip: c, hostname: m2}]}}}",
			nil,
		},
		"an address is missing": {
			"{kind: Ingress, status: {loadBalancer: {ingress: [{ip: a}]}}}",
			"{kind: Ingress, status: {loadBalancer: {ingress: [{ip: b}]}}}",
			[]string{"hub status.loadBalancer.ingress: 2 -> 1"},
		},
		"names of revisions": {
			"{kind: StatefulSet, status: {updateRevision: a, replicas: 1}}", "{kind: StatefulSet, status: {updateRevision: b, replicas: 1}}", nil,
		},
		"phases, lists and maps": {
			"{kind: ResourceQuota, status: {phase: A, hard: {pods: '1'}, list: [{name: a, lastTransitionTime: t}]}}",
			"{kind: ResourceQuota, status: {phase: B, hard: {pods: '2'}, list: [{name: a, lastTransitionTime: u}]}}",
			[]string{"hub status.hard.pods: 1 -> 2", "hub status.phase: A -> B"},
		},
		"no status": {
			"{kind: A, status: {count: 1}}", "{kind: A}", []string{"hub status.count: 1 -> "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			expectDifferences(t, DiffStatuses("A a", parse(t, c.control), parse(t, c.hub), 2), c.want...)
		})
	}
}

func TestUnsettled(t *testing.T) {
	const done = "conditions: [{type: Progressing, reason: NewReplicaSetAvailable}]"
	for text, want := range map[string]bool{
		"{kind: ConfigMap}": false,
		"{kind: Deployment, metadata: {generation: 1}, status: {observedGeneration: 1}}":                                                       true,
		"{kind: Deployment, status: {conditions: [{type: ReplicaFailure, status: 'True'}]}}":                                                   false,
		"{kind: Deployment, spec: {paused: true}}":                                                                                             false,
		"{kind: Deployment, metadata: {generation: 2}, status: {observedGeneration: 1, readyReplicas: 1, availableReplicas: 1, " + done + "}}": true,
		"{kind: Deployment, spec: {replicas: 2}, status: {readyReplicas: 2, availableReplicas: 1, " + done + "}}":                              true,
		"{kind: Deployment, spec: {replicas: 2}, status: {readyReplicas: 2, availableReplicas: 2, " + done + "}}":                              false,
		"{kind: Deployment, spec: {replicas: 2}, status: {readyReplicas: 2, availableReplicas: 2}}":                                            true,
		"{kind: Deployment, spec: {replicas: 0}, status: {" + done + "}}":                                                                      false,
		"{kind: DaemonSet}": true,
		"{kind: DaemonSet, status: {desiredNumberScheduled: 3, numberAvailable: 3}}": false,
		"{kind: Job}": true,
		"{kind: Job, status: {conditions: [{type: Suspended, status: 'True'}]}}":                                       false,
		"{kind: Job, status: {conditions: [{type: Complete, status: 'False'}]}}":                                       true,
		"{kind: Pod, status: {phase: Running}}":                                                                        true,
		"{kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}":                           false,
		"{kind: Pod, status: {phase: Succeeded}}":                                                                      false,
		"{kind: PersistentVolumeClaim, status: {phase: Pending}}":                                                      true,
		"{kind: PersistentVolumeClaim, status: {phase: Bound}}":                                                        false,
		"{kind: Service, spec: {type: ClusterIP}}":                                                                     false,
		"{kind: Service, spec: {type: LoadBalancer}}":                                                                  true,
		"{kind: Ingress, status: {loadBalancer: {ingress: [{ip: a}]}}}":                                                false,
		"{kind: HorizontalPodAutoscaler}":                                                                              true,
		"{kind: HorizontalPodAutoscaler, metadata: {annotations: {autoscaling.alpha.kubernetes.io/conditions: '[]'}}}": false,
		"{kind: PodDisruptionBudget}":                                                                                  true,
		"{kind: CustomResourceDefinition, status: {conditions: [{type: Established, status: 'True'}]}}":                false,
		"{kind: CustomResourceDefinition}":                                                                             true,
		"{kind: ResourceQuota}":                                                                                        true,
		"{kind: ResourceQuota, status: {hard: {pods: '1'}}}":                                                           false,
	} {
		if got := UnsettledReason(parse(t, text)); (got != "") != want {
			t.Errorf("%s: unsettled is %q, want %t", text, got, want)
		}
	}
	a, b := parse(t, "{kind: A, status: {n: 1}}"), parse(t, "{kind: A, status: {n: 2}}")
	if ComparableStatusText([]*unstructured.Unstructured{a, nil}) == ComparableStatusText([]*unstructured.Unstructured{b, nil}) {
		t.Error("two statuses have one text")
	}
}

func TestAnswersOfCommands(t *testing.T) {
	for name, c := range map[string]struct {
		control, hub CommandAnswer
		want         []string
	}{
		"equal":          {NewCommandAnswer(0, "a\n\nb\n"), NewCommandAnswer(0, "b\na"), nil},
		"other exit":     {NewCommandAnswer(0, "a"), NewCommandAnswer(1, "a"), []string{"hub apply: exit code 0 -> exit code 1"}},
		"other lines":    {NewCommandAnswer(0, "a\na\nb"), NewCommandAnswer(0, "a\nc"), []string{"hub apply: a -> c", "hub apply: b -> "}},
		"a further line": {NewCommandAnswer(0, "a"), NewCommandAnswer(0, "a\nWarning: x"), []string{"hub apply:  -> Warning: x"}},
	} {
		t.Run(name, func(t *testing.T) {
			expectDifferences(t, DiffCommandAnswers(Accepted, "apply", c.control, c.hub), c.want...)
		})
	}
	a := NewCommandAnswer(0, "x deleted\ny")
	if got := a.WithoutLines(func(line string) bool { return strings.HasSuffix(line, "deleted") }); !slices.Equal(got.Lines, []string{"y"}) || len(a.Lines) != 2 {
		t.Errorf("the answer is %v, before %v", got, a)
	}
}

func TestColumnsOfObjects(t *testing.T) {
	table := func(cells ...any) *metav1.Table {
		return &metav1.Table{
			ColumnDefinitions: []metav1.TableColumnDefinition{
				{Name: "Name"}, {Name: "Ready"}, {Name: "Port(s)"}, {Name: "Age"}, {Name: "When", Type: "date"}, {Name: "Wide", Priority: 1},
			},
			Rows: []metav1.TableRow{{Cells: cells}},
		}
	}
	control, hub := ReadRow(table("web", "1/1", "80:30001/TCP", "5s", "1s", "x")), ReadRow(table("web", "2/2", "80:30002/TCP", "6s", "2s", "y"))
	expectDifferences(t, DiffRows("A a", control, hub), "hub get READY: 1/1 -> 2/2")
	if got := ReadRow(&metav1.Table{}); len(got) != 0 {
		t.Errorf("an empty table has %v", got)
	}
}

func TestPresence(t *testing.T) {
	o := parse(t, "{kind: A}")
	for name, c := range map[string]struct {
		control, live *unstructured.Unstructured
		both          bool
		want          []string
	}{
		"both":    {o, o, true, nil},
		"neither": {nil, nil, false, nil},
		"absent":  {o, nil, false, []string{"m object: present -> absent"}},
		"extra":   {nil, o, false, []string{"m object: absent -> present"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, both := DiffPresence(Objects, "m", "A a", c.control, c.live)
			if both != c.both {
				t.Errorf("both is %t", both)
			}
			expectDifferences(t, got, c.want...)
		})
	}
}

func TestGeneratedNamesAreReplaced(t *testing.T) {
	got := ReplaceName(map[string]any{"metadata": map[string]any{"name": "job-abcde"}, "list": []any{"x job-abcde-0", int64(1)}}, "job-abcde", "job-*")
	if fmt.Sprint(got) != "map[list:[x job-*-0 1] metadata:map[name:job-*]]" {
		t.Errorf("the content is %v", got)
	}
	if got := ObjectName("Pod", "n", "a") + " " + ObjectName("Node", "", "a"); got != "Pod n/a Node a" {
		t.Errorf("the names are %q", got)
	}
}

func TestExpectedDifferences(t *testing.T) {
	list, err := ParseExpectedDifferences([]byte(`
- {manifest: tokens, object: Secret a/token, path: object, reason: first}
- {manifest: "*", object: "Secret *", path: "status.*", reason: second}
- {manifest: tokens, path: apply, reason: third}
- {manifest: other, path: apply, reason: fourth}
`))
	if err != nil {
		t.Fatal(err)
	}
	found := []Difference{
		{Object: "Secret a/token", Path: "object"},
		{Object: "Secret a/token", Path: "status.a.b", Reason: "of the caller"},
		{Object: "Pod a/token", Path: "status.a"},
		{Path: "apply"},
	}
	explained, used := SetReasons("tokens", found, list)
	var reasons []string
	for _, d := range explained {
		reasons = append(reasons, d.Reason)
	}
	if !slices.Equal(reasons, []string{"first", "second", "", "third"}) || !slices.Equal(used, []bool{true, true, true, false}) {
		t.Errorf("the reasons are %q, used are %v", reasons, used)
	}
	if !HasUnexpected(explained) || HasUnexpected(explained[:2]) || HasUnexpected(nil) {
		t.Error("one difference is unexpected")
	}
	if !list[0].NamesOneManifest() || list[1].NamesOneManifest() || !list[1].IsForManifest("x") || list[0].IsForManifest("x") {
		t.Error("an entry is for the wrong manifest")
	}
}

func TestBadListsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"- {manifest: a, path: b}":                           "lacks a manifest, a path or a reason",
		"- {manifest: a, path: b, reason: c, because: none}": "unknown field",
		"{}": "cannot unmarshal",
		strings.Repeat("- {manifest: a, path: b, reason: c}\n", maxExpected+1): "at most",
	} {
		if _, err := ParseExpectedDifferences([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}
