package userfields

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// parseMap parses YAML with numbers as the API server reads them.
func parseMap(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	u := &unstructured.Unstructured{}
	if err == nil {
		err = u.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return u.Object
}

// Fields that an API server or a controller fills in are removed, and those of users stay. With unknown owners,
// more fields are removed.
func TestWhatIsRemovedOfEachKind(t *testing.T) {
	const unbound = "{spec: {volumeName: pv}}"
	for name, c := range map[string]struct{ kind, obj, strict, loose string }{
		"the hub's addresses of a Service": {"Service", "{spec: {clusterIP: 255.255.255.9, clusterIPs: [255.255.255.9, 10.0.0.1], healthCheckNodePort: 9}}",
			"{spec: {clusterIPs: [10.0.0.1]}}", "{spec: {}}"},
		"addresses of a Service": {"Service", "{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30080}, text]}}",
			"{spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30080}, text]}}", "{spec: {ports: [{port: 80}, text]}}"},
		"a headless Service":     {"Service", "{spec: {clusterIP: None, clusterIPs: [None]}}", "{spec: {clusterIP: None, clusterIPs: [None]}}", "{spec: {clusterIP: None}}"},
		"a Service without spec": {"Service", "{data: x}", "{data: x}", "{data: x}"},
		"secrets of a ServiceAccount": {"ServiceAccount", "{metadata: {name: a}, secrets: [{name: a-token-x}, {name: mine}, {name: a-dockercfg-y}, {name: b-token-x}]}",
			"{metadata: {name: a}, secrets: [{name: mine}, {name: b-token-x}]}", ""},
		"only made secrets":                {"ServiceAccount", "{metadata: {name: a}, secrets: [{name: a-token-x}]}", "{metadata: {name: a}}", ""},
		"a ServiceAccount without secrets": {"ServiceAccount", "{metadata: {name: a}}", "{metadata: {name: a}}", ""},
		"a token Secret": {"Secret", "{type: kubernetes.io/service-account-token, data: {ca.crt: a, namespace: b, token: c, mine: d}, metadata: {annotations: {kubernetes.io/service-account.uid: u, kubernetes.io/service-account.name: n}, labels: {kubernetes.io/legacy-token-last-used: x, app: web}}}",
			"{type: kubernetes.io/service-account-token, data: {mine: d}, metadata: {annotations: {kubernetes.io/service-account.name: n}, labels: {app: web}}}", ""},
		"another Secret": {"Secret", "{type: Opaque, data: {token: c}}", "{type: Opaque, data: {token: c}}", ""},
		"a claim":        {"PersistentVolumeClaim", unbound, unbound, "{spec: {}}"},
		"a bound claim":  {"PersistentVolumeClaim", "{metadata: {annotations: {pv.kubernetes.io/bind-completed: 'yes', volume.kubernetes.io/selected-node: n, a: b}}, spec: {volumeName: pv}}", "{metadata: {annotations: {a: b}}, spec: {}}", ""},
		"a volume":       {"PersistentVolume", "{metadata: {annotations: {pv.kubernetes.io/bound-by-controller: 'yes'}}, spec: {claimRef: {name: c, uid: u, resourceVersion: '3'}}}", "{metadata: {annotations: {}}, spec: {claimRef: {name: c}}}", ""},
		"a Pod":          {"Pod", "{spec: {nodeName: n, priority: 0, preemptionPolicy: Never, hostname: h}}", "{spec: {nodeName: n, priority: 0, preemptionPolicy: Never, hostname: h}}", "{spec: {hostname: h}}"},
		"a Job": {"Job", "{metadata: {name: once, labels: {job-name: once, controller-uid: u}}, spec: {selector: {a: b}, template: {metadata: {labels: {job-name: once, batch.kubernetes.io/job-name: once, batch.kubernetes.io/controller-uid: u, app: web}}}}}",
			"{metadata: {name: once, labels: {job-name: once}}, spec: {template: {metadata: {labels: {app: web}}}}}", ""},
		"a Job with only its own labels": {"Job", "{metadata: {name: once, labels: {job-name: other}}, spec: {template: {metadata: {labels: {controller-uid: u}}}}}", "{metadata: {name: once}, spec: {template: {metadata: {}}}}", ""},
		"a Job that its user ties":       {"Job", "{spec: {manualSelector: true, selector: {a: b}}}", "{spec: {manualSelector: true, selector: {a: b}}}", ""},
		"a Job that is not tied":         {"Job", "{spec: {manualSelector: false, selector: {a: b}}}", "{spec: {manualSelector: false}}", ""},
		"a Job without spec":             {"Job", "{metadata: {name: once}}", "{metadata: {name: once}}", ""},
		"a CronJob":                      {"CronJob", "{metadata: {labels: {controller-uid: u}}, spec: {jobTemplate: {metadata: {labels: {controller-uid: u}}, spec: {selector: {a: b}}}}}", "{metadata: {labels: {controller-uid: u}}, spec: {jobTemplate: {metadata: {}, spec: {}}}}", ""},
		"a StatefulSet":                  {"StatefulSet", "{spec: {volumeClaimTemplates: [{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Pending}, spec: {a: b}}, text]}}", "{spec: {volumeClaimTemplates: [{spec: {a: b}}, text]}}", ""},
		"a role that aggregates":         {"ClusterRole", "{aggregationRule: {a: b}, rules: [{verbs: [get]}]}", "{aggregationRule: {a: b}}", ""},
		"a role":                         {"ClusterRole", "{rules: [{verbs: [get]}]}", "{rules: [{verbs: [get]}]}", ""},
		"a Deployment":                   {"Deployment", "{metadata: {annotations: {deployment.kubernetes.io/revision: '3', deprecated.daemonset.template.generation: '1', a: b}}}", "{metadata: {annotations: {a: b}}}", ""},
		"a Namespace":                    {"Namespace", "{metadata: {labels: {kubernetes.io/metadata.name: n, a: b}}, spec: {finalizers: [kubernetes]}}", "{metadata: {labels: {a: b}}}", ""},
		"an APIService":                  {"APIService", "{metadata: {labels: {kube-aggregator.kubernetes.io/automanaged: onstart, a: b}}}", "{metadata: {labels: {a: b}}}", ""},
	} {
		clean := findCleaner(c.kind)
		if c.loose == "" {
			c.loose = c.strict
		}
		for loose, want := range map[bool]string{false: c.strict, true: c.loose} {
			got := parseMap(t, "{kind: "+c.kind+", "+c.obj[1:])
			clean(got, loose)
			if want := parseMap(t, "{kind: "+c.kind+", "+want[1:]); !reflect.DeepEqual(got, want) {
				t.Errorf("%s, loose %t: %v, want %v", name, loose, got, want)
			}
		}
	}
}

func findCleaner(kind string) kindCleaner {
	for gk, c := range kindCleaners {
		if gk.Kind == kind {
			return c
		}
	}
	return nil
}

// The mounts of a token that a member's own admission adds are removed of every pod.
func TestInjectedTokensAreRemovedOfPods(t *testing.T) {
	spec := parseMap(t, `{kind: x, serviceAccount: a, serviceAccountName: a, volumes: [{name: kube-api-access-x}, {name: data}],
containers: [{name: c, volumeMounts: [{name: kube-api-access-x}]}, text], initContainers: [{name: i, volumeMounts: [{name: data}, {name: kube-api-access-x}]}], ephemeralContainers: [{name: e, volumeMounts: [{name: kube-api-access-x}]}]}`)
	want := parseMap(t, `{kind: x, serviceAccountName: a, volumes: [{name: data}], containers: [{name: c}, text], initContainers: [{name: i, volumeMounts: [{name: data}]}], ephemeralContainers: [{name: e}]}`)
	if cleanPodSpec(spec); !reflect.DeepEqual(spec, want) {
		t.Errorf("%v, want %v", spec, want)
	}
	for text, want := range map[string]string{
		"{kind: x, serviceAccount: a}": "{kind: x, serviceAccount: a}", "{kind: x, serviceAccountName: a}": "{kind: x, serviceAccountName: a}",
		"{kind: x, volumes: []}": "{kind: x, volumes: []}", "{kind: x, volumes: [{name: kube-api-access-x}]}": "{kind: x}",
	} {
		spec := parseMap(t, text)
		if cleanPodSpec(spec); !reflect.DeepEqual(spec, parseMap(t, want)) {
			t.Errorf("%s: %v, want %s", text, spec, want)
		}
	}
}

// extractFrom returns what users stated of an object.
func extractFrom(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := ExtractUserFields(&unstructured.Unstructured{Object: parseMap(t, text)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Text that a user writes as stringData of a Secret is stated as its data.
func TestTextOfSecretsIsStatedAsData(t *testing.T) {
	const head = "{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: shop, "
	for name, c := range map[string]struct{ metadata, want string }{
		"applied as stringData":           {"managedFields: [{manager: kubectl, operation: Apply, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:stringData': {'f:a': {}}}}]", "{a: eA==}"},
		"updated as stringData":           {"managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:stringData': {'f:a': {}}}}]", "{a: eA==}"},
		"last applied as stringData":      {"annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"stringData\":{\"a\":\"x\"}}'}, managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:type': {}}}]", "{a: eA==}"},
		"last applied beside data":        {"annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"b\":\"eQ==\"},\"stringData\":{\"a\":\"x\"}}'}, managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:type': {}}}]", "{a: eA==, b: eQ==}"},
		"an annotation that is malformed": {"annotations: {kubectl.kubernetes.io/last-applied-configuration: 'text'}, managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {'f:data': {'f:b': {}}}}]", "{b: eQ==}"},
	} {
		got := extractFrom(t, head+c.metadata+"}, type: Opaque, data: {a: eA==, b: eQ==}}")
		if want := parseMap(t, "{kind: x, data: "+c.want+"}")["data"]; !reflect.DeepEqual(got["data"], want) {
			t.Errorf("%s: %v, want %v", name, got["data"], want)
		}
	}
}

// The elements of a list are stated by its owners one by one. An element whose key alone is owned is stated
// where it was applied, or where a user owns it as a whole.
func TestElementsOfListsAreStatedByTheirOwners(t *testing.T) {
	const head = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop"
	entry := func(fields string) string {
		return ", managedFields: [{manager: kubectl, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: " + fields + "}]"
	}
	const key = `'k:{"name":"a"}'`
	last := func(text string) string {
		return ", annotations: {kubectl.kubernetes.io/last-applied-configuration: '" + text + "'}"
	}
	for name, c := range map[string]struct{ metadata, spec, want string }{
		"a field of one element": {entry("{'f:spec': {'f:list': {" + key + ": {'f:size': {}}}}}"), "{list: [{name: a, size: 1, other: 2}, {name: b, size: 3}]}", "{list: [{name: a, size: 1}]}"},
		"one element as a whole": {entry("{'f:spec': {'f:list': {" + key + ": {'.': {}}}}}"), "{list: [{name: a, size: 1}, {name: b}]}", "{list: [{name: a, size: 1}]}"},
		"its key alone":          {entry("{'f:spec': {'f:list': {" + key + ": {'f:name': {}}}}}"), "{list: [{name: a, size: 1}]}", ""},
		"its key, last applied":  {entry("{'f:spec': {'f:list': {"+key+": {'f:name': {}}}}}") + last(`{"spec":{"list":[{"name":"a"}]}}`), "{list: [{name: a, size: 1}]}", "{list: [{name: a}]}"},
		"values":                 {entry("{'f:spec': {'f:list': {'v:\"a\"': {}}}}"), "{list: [a, b]}", "{list: [a]}"},
		"a value, last applied":  {entry("{'f:spec': {'f:list': {'v:\"a\"': {}}}}") + last(`{"spec":{"list":["b"]}}`), "{list: [a, b, c]}", "{list: [a, b]}"},
		"the list as a whole":    {entry("{'f:spec': {'f:list': {}}}"), "{list: [{name: a}, {name: b}], other: 3}", "{list: [{name: a}, {name: b}]}"},
		"of scalars as a whole":  {entry("{'f:spec': {'f:list': {}}}"), "{list: [a, 3]}", "{list: [a, 3]}"},
		"empty maps in a list":   {entry("{'f:spec': {'f:list': {}}}"), "{list: [{}, {name: b}]}", "{list: [{}, {name: b}]}"},
		"by index":               {entry("{'f:spec': {'f:list': {'i:0': {}}}}"), "{list: [{name: a}]}", "{list: [{name: a}]}"},
	} {
		got := extractFrom(t, head+c.metadata+"}, spec: "+c.spec+"}")
		var want any
		if c.want != "" {
			want = parseMap(t, "{kind: x, spec: "+c.want+"}")["spec"]
		}
		if !isSameJSON(t, got["spec"], want) {
			t.Errorf("%s: %v, want %v", name, got["spec"], want)
		}
	}
}

func isSameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// managedFields that cannot be read are an error that names the object and the manager.
func TestUnreadableOwnersAreAnError(t *testing.T) {
	for fields, want := range map[string]string{
		"{'f:spec': text}":          `below "f:spec" there is no object`,
		"{'x:spec': {}}":            `path element "x:spec" is of no known kind`,
		"{'k:text': {}}":            `key "k:text": invalid character 'e' in literal true (expecting 'r')`,
		"{'v:text': {}}":            `value "v:text": invalid character 'e' in literal true (expecting 'r')`,
		"{'f:spec': {'x:a': {}}}":   `path element "x:a" is of no known kind`,
		"{'f:spec': {'f:a': text}}": `below "f:a" there is no object`,
	} {
		u := &unstructured.Unstructured{Object: parseMap(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop, managedFields: [{manager: kubectl, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: "+fields+"}]}, spec: {a: b}}")}
		_, err := ExtractUserFields(u, nil)
		if want := "prune Thing shop/s: managedFields of kubectl: " + want; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", fields, err, want)
		}
		if u.SetGeneration(0); FingerprintUserFields(u) == "" {
			t.Errorf("%s: there is no fingerprint", fields)
		}
	}
}

// failingDefaulter knows no defaults.
type failingDefaulter struct{}

func (failingDefaulter) Default(*unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return nil, errors.New("no defaults")
}

// Defaults that cannot be found and a conversion that cannot be read are errors.
func TestErrorsOfDefaultsAndConversions(t *testing.T) {
	thing := &unstructured.Unstructured{Object: parseMap(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop}, spec: {a: b}}")}
	if _, err := ExtractUserFields(thing, failingDefaulter{}); err == nil || err.Error() != "prune Thing shop/s: defaults: no defaults" {
		t.Errorf("%v", err)
	}
	crd := &unstructured.Unstructured{Object: parseMap(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: c, annotations: {atoll.dev/conversion: '[]'}}, spec: {a: b}}")}
	if _, err := ExtractUserFields(crd, nil); err == nil || err.Error() != "prune CustomResourceDefinition c: annotation atoll.dev/conversion: json: cannot unmarshal array into Go value of type map[string]interface {}" {
		t.Errorf("%v", err)
	}
	crd.SetAnnotations(map[string]string{"atoll.dev/conversion": `{"strategy":"Webhook"}`})
	raw, err := ExtractUserFields(crd, nil)
	if err != nil || string(raw) != `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"c"},"spec":{"a":"b","conversion":{"strategy":"Webhook"}}}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// Values are compared as JSON: numbers by value, and lists in their order.
func TestValuesAreComparedAsJSON(t *testing.T) {
	for _, c := range []struct {
		a, b any
		want bool
	}{
		{int64(1), 1.0, true}, {1, int64(1), true}, {int64(1), int64(2), false}, {int64(1), "1", false}, {"1", int64(1), false}, {nil, nil, true}, {nil, false, false},
		{[]any{int64(1), "a"}, []any{1.0, "a"}, true}, {[]any{"a", "b"}, []any{"b", "a"}, false}, {[]any{}, map[string]any{}, false}, {map[string]any{}, []any{}, false},
		{map[string]any{"a": int64(1)}, map[string]any{"a": 1}, true}, {map[string]any{"a": nil}, map[string]any{"b": nil}, false}, {"a", "a", true},
	} {
		if got := EqualJSON(c.a, c.b); got != c.want {
			t.Errorf("%v and %v: %t", c.a, c.b, got)
		}
	}
}

// The fingerprint sees the keys that users write, the last applied configuration, and the managers with their times.
func TestFingerprintsSeeWhatUsersWrite(t *testing.T) {
	const head = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop, generation: 1"
	entry := func(text string) string { return ", managedFields: [{" + text + "}]" }
	of := func(metadata string) string {
		return FingerprintUserFields(&unstructured.Unstructured{Object: parseMap(t, head+metadata+"}, spec: {a: b}}")})
	}
	const owner = "manager: kubectl, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}"
	for name, c := range map[string]struct {
		a, b string
		same bool
	}{
		"a label of the hub":            {"", ", labels: {atoll.dev/x: z}", true},
		"a label":                       {"", ", labels: {x: z}", false},
		"an annotation of the hub":      {"", ", annotations: {atoll.dev/x: z}", true},
		"the last applied":              {"", ", annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}", false},
		"the conversion":                {"", ", annotations: {atoll.dev/conversion: '{}'}", false},
		"the hub's finalizer":           {"", ", finalizers: [atoll.dev/x, orphan]", true},
		"another finalizer":             {"", ", finalizers: [example.com/x]", false},
		"an owner":                      {"", entry(owner), false},
		"another manager":               {entry(owner), entry("manager: helm, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}"), false},
		"another operation":             {entry(owner), entry("manager: kubectl, operation: Apply, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}"), false},
		"another version":               {entry(owner), entry("manager: kubectl, operation: Update, apiVersion: example.com/v2, fieldsType: FieldsV1, fieldsV1: {'f:spec': {}}"), false},
		"other fields":                  {entry(owner), entry("manager: kubectl, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {'f:data': {}}"), false},
		"another time":                  {entry(owner), entry(owner + ", time: '2026-01-02T03:04:05Z'"), false},
		"another subresource":           {entry(owner), entry(owner + ", subresource: scale"), false},
		"an owner of its status":        {"", entry(owner + ", subresource: status"), true},
		"a controller of Kubernetes":    {"", entry("manager: 'system:controller:x', operation: Update, fieldsV1: {'f:spec': {}}"), true},
		"another identity of the hub's": {"", entry("manager: 'system:atoll:x', operation: Update, fieldsV1: {'f:spec': {}}"), true},
	} {
		if same := of(c.a) == of(c.b); same != c.same {
			t.Errorf("%s: the fingerprint is the same: %t", name, same)
		}
	}
}

// sizeDefaulter fills in the size of elements.
type sizeDefaulter struct{}

func (sizeDefaulter) Default(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	out := obj.DeepCopy()
	list, _, _ := unstructured.NestedSlice(out.Object, "spec", "list")
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && m["size"] == nil {
			m["size"] = int64(1)
		}
	}
	if list != nil {
		_ = unstructured.SetNestedSlice(out.Object, list, "spec", "list")
	}
	return out, nil
}

// An element of a list stays although all of its fields are defaults: the list keeps its length.
func TestElementsOfDefaultsStay(t *testing.T) {
	const head = "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop, managedFields: [{manager: kubectl, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: "
	for name, c := range map[string]struct{ fields, spec, want string }{
		"a list as a whole": {"{'f:spec': {'f:list': {}}}", "{list: [{size: 1}, {size: 2}]}", "{list: [{}, {size: 2}]}"},
		"elements by key":   {`{'f:spec': {'f:list': {'k:{"name":"a"}': {'.': {}, 'f:name': {}, 'f:size': {}}}}}`, "{list: [{name: a, size: 1}]}", "{list: [{name: a}]}"},
	} {
		raw, err := ExtractUserFields(&unstructured.Unstructured{Object: parseMap(t, head+c.fields+"}]}, spec: "+c.spec+"}")}, sizeDefaulter{})
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		if want := parseMap(t, "{kind: x, spec: "+c.want+"}")["spec"]; !isSameJSON(t, got["spec"], want) {
			t.Errorf("%s: %v, want %v", name, got["spec"], want)
		}
	}
}

// Fields that have the name of managedFields, or metadata of another form, are as any other field.
func TestOnlyTheOwnersOfMetadataAreLeftOut(t *testing.T) {
	got := extractFrom(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop, managedFields: []}, spec: {managedFields: [a]}, status: {a: b}}")
	if want := parseMap(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: s, namespace: shop}, spec: {managedFields: [a]}}"); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
