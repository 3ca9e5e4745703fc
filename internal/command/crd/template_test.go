package crd

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// newDefinition reads a definition as a member answers it.
func newDefinition(t *testing.T, text string) definition {
	t.Helper()
	d, err := readDefinition(decodeObject(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func decodeObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// installed is a definition as an operator's chart and its controllers leave it in a member.
const installed = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  uid: 5a1d
  resourceVersion: "812"
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  deletionTimestamp: "2026-01-03T03:04:05Z"
  deletionGracePeriodSeconds: 0
  selfLink: /x
  finalizers: [customresourcecleanup.apiextensions.k8s.io, example.com/guard]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: x}]
  managedFields: [{manager: helm, operation: Update, apiVersion: apiextensions.k8s.io/v1, fieldsType: FieldsV1, fieldsV1: {}}]
  labels:
    team: shop
    app.kubernetes.io/managed-by: Helm
    atoll.dev/bundle-uid: b1
    kustomize.toolkit.fluxcd.io/name: infra
  annotations:
    api-approved.kubernetes.io: "https://example.com/1"
    controller-gen.kubebuilder.io/version: v0.16.0
    kubectl.kubernetes.io/last-applied-configuration: "{}"
    atoll.dev/left-behind: t1
    engine.atoll.dev/x: z
    atoll.dev/clusters: "*"
    meta.helm.sh/release-name: widgets
    cert-manager.io/inject-ca-from: widgets/serving
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {caBundle: bWVtYmVy, service: {namespace: widgets, name: hook, path: /convert, port: 443}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
status:
  storedVersions: [v1beta1, v1]
  acceptedNames: {plural: widgets, kind: Widget}
`

const template = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
  labels: {team: shop}
  annotations:
    api-approved.kubernetes.io: "https://example.com/1"
    controller-gen.kubebuilder.io/version: v0.16.0
    atoll.dev/conflict-resolution: AdoptIfSame
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd]}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v1beta1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

// The template has what defines the kind, and nothing that belongs to the member. The member's object
// stays as it was read.
func TestTemplateLeavesOutWhatBelongsToTheMember(t *testing.T) {
	d := newDefinition(t, installed)
	got, leftOut := d.buildTemplate()
	if want := decodeObject(t, template); !reflect.DeepEqual(got.Object, want.Object) {
		text, _ := yaml.Marshal(got.Object)
		t.Errorf("got\n%s", text)
	}
	want := []string{
		"marks of tools in the cluster: app.kubernetes.io/managed-by, cert-manager.io/inject-ca-from, kustomize.toolkit.fluxcd.io/name, meta.helm.sh/release-name",
		"its conversion webhook (service widgets/hook): clusters with the definition keep theirs, and others convert without one",
	}
	if !slices.Equal(leftOut, want) {
		t.Errorf("left out %q", leftOut)
	}
	if !reflect.DeepEqual(d.object.Object, decodeObject(t, installed).Object) {
		t.Error("the member's object was changed")
	}
}

func TestTemplateNamesTheConversionWebhook(t *testing.T) {
	for _, c := range []struct{ conversion, want string }{
		{"{strategy: None}", ""},
		{"{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://hooks.example.com/c'}}}", "https://hooks.example.com/c"},
		{"{strategy: Webhook}", "without an address"},
		{"{strategy: Webhook, webhook: {conversionReviewVersions: [v1]}}", "without an address"},
		{"{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {}}}", "without an address"},
	} {
		o := decodeObject(t, installed)
		o.Object["spec"].(map[string]any)["conversion"] = decodeObject(t, c.conversion).Object
		d, err := readDefinition(o)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.spec.webhookName(); got != c.want {
			t.Errorf("%s: %q, want %q", c.conversion, got, c.want)
		}
		if made, _ := d.buildTemplate(); made.Object["spec"].(map[string]any)["conversion"] != nil {
			t.Errorf("%s: the template has a conversion", c.conversion)
		}
	}
}

func TestMarksOfTools(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       bool
	}{
		{"app.kubernetes.io/managed-by", "Helm", true},
		{"app.kubernetes.io/managed-by", "shop-team", false},
		{"app.kubernetes.io/name", "Helm", false},
		{"argocd.argoproj.io/tracking-id", "x", true},
		{"helm.toolkit.fluxcd.io/name", "x", true},
		{"olm.managed", "true", true},
		{"notargocd.argoproj.io.example.com/x", "", false},
		{"notmeta.helm.sh/x", "", false},
		{"meta.helm.sh", "", false},
		{"api-approved.kubernetes.io", "x", false},
	} {
		if got := isToolMark(c.key, c.value); got != c.want {
			t.Errorf("%s=%s: %v", c.key, c.value, got)
		}
	}
}

// The answer of a member is checked before it is used: it names paths on the hub.
func TestDefinitionsOfAnotherFormAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"another kind":        {"kind: CustomResourceDefinition", "kind: Secret", "in place of a CustomResourceDefinition"},
		"an old version":      {"apiextensions.k8s.io/v1\n", "apiextensions.k8s.io/v1beta1\n", "in place of"},
		"another name":        {"name: widgets.example.com", "name: bundles.atoll.dev", "another name than its resource"},
		"a hostile name":      {"widgets", "../widgets", "another name"},
		"upper case":          {"widgets", "Widgets", "another name"},
		"no kind":             {"kind: Widget,", "", "no kind"},
		"no versions":         {"  - {name: v1, ", "  unknown:\n  - {name: v1, ", "no version"},
		"a label of a number": {"team: shop", "team: 5", "another form"},
		"group of a number":   {"group: example.com", "group: 5", "another form"},
	} {
		_, err := readDefinition(decodeObject(t, strings.ReplaceAll(installed, c.old, c.new)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := readDefinition(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": "none"}}); err == nil {
		t.Error("a spec that is a text is taken")
	}
}

func TestHubOwnedDefinitions(t *testing.T) {
	for _, c := range []struct {
		group, plural, kind string
		want                bool
	}{
		{"atoll.dev", "bundles", "Bundle", true},
		{"engine.atoll.dev", "revisions", "Revision", true},
		{"agent.atoll.dev", "agentpolicies", "AgentPolicy", true},
		{"multicluster.x-k8s.io", "clusterprofiles", "ClusterProfile", true},
		{"multicluster.x-k8s.io", "placementdecisions", "PlacementDecision", true},
		{"multicluster.x-k8s.io", "serviceexports", "ServiceExport", false},
		{"config.karmada.io", "resourceinterpretercustomizations", "ResourceInterpreterCustomization", true},
		{"policy.karmada.io", "propagationpolicies", "PropagationPolicy", false},
		{"notatoll.dev", "bundles", "Bundle", false},
		{"atoll.dev.example.com", "bundles", "Bundle", false},
	} {
		var d definition
		d.spec.Group, d.spec.Names.Plural, d.spec.Names.Kind = c.group, c.plural, c.kind
		if got := d.isHubOwned(); got != c.want {
			t.Errorf("%s.%s: %v", c.plural, c.group, got)
		}
	}
}

func TestFindShortName(t *testing.T) {
	widget := newDefinition(t, installed)
	other := newDefinition(t, strings.ReplaceAll(strings.ReplaceAll(installed, "example.com", "example.org"), "[wd]", "[wo]"))
	all := []definition{widget, other}
	for name, want := range map[string]string{
		"wd": "widgets.example.com", "WO": "widgets.example.org", "Widget": "of widgets.example.com, widgets.example.org",
		"widgets": "2 definitions", "gadget": "no definition with the resource or kind", "": "no definition",
	} {
		d, err := findShortName(all, "tokyo-1", name)
		if err == nil && d.fullName() != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
}
