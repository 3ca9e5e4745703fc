package state

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// budgetConverter converts PodDisruptionBudgets alone.
type budgetConverter struct{}

func (budgetConverter) ListVersions(gk schema.GroupKind) []string {
	if gk == (schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}) {
		return []string{"policy/v1", "policy/v1beta1"}
	}
	return nil
}

func (budgetConverter) ConvertObject(object map[string]any, apiVersion string) (map[string]any, error) {
	if object["spec"] != nil {
		return nil, errors.New("cannot hold /spec")
	}
	return map[string]any{"apiVersion": apiVersion, "kind": object["kind"], "converted": true}, nil
}

// versionWorld is a table of Clusters by name, each with the hash of what it serves.
func versionWorld(t *testing.T, sets map[string][]string, clusters map[string]string) (*ClusterViews, func(string) atoll.MemberVersions) {
	t.Helper()
	table := newClusters()
	v := newViews(table, budgetConverter{})
	for name, hash := range clusters {
		table.put(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("u-" + name)}, Status: v1alpha1.ClusterStatus{APIsHash: hash}})
	}
	for hash, apis := range sets {
		v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: hash}, APIs: apis})
	}
	return v, func(name string) atoll.MemberVersions {
		c, _ := table.Get(name)
		out := v.ViewOf(c).Versions
		if also := v.ViewForOverrides(c).Versions; also != out {
			t.Errorf("%s has %v for placement and %v for rendering", name, out, also)
		}
		return out
	}
}

func widgetDefinition(conversion *apiextensionsv1.CustomResourceConversion, annotations map[string]string, versions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", Annotations: annotations}}
	crd.Spec.Group, crd.Spec.Names.Kind, crd.Spec.Conversion = "example.com", "Widget", conversion
	for _, v := range versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: v != "v0"})
	}
	return crd
}

func TestReplacementsAreWhatTheClusterServesAndTheHubConverts(t *testing.T) {
	v, of := versionWorld(t, map[string][]string{
		"old": {"example.com/v1beta1/Widget", "example.com/v1alpha1/Widget", "example.com/v0/Widget", "policy/v1beta1/PodDisruptionBudget"},
		"new": {"example.com/v1/Widget", "example.com/v1beta1/Widget", "policy/v1/PodDisruptionBudget"},
	}, map[string]string{"a": "old", "b": "new", "c": "unknown", "d": ""})
	v.put(widgetDefinition(nil, nil, "v0", "v1alpha1", "v1", "v1beta1"))
	for _, tc := range []struct {
		cluster, apiVersion, kind string
		want                      []string
	}{
		{"a", "policy/v1", "PodDisruptionBudget", []string{"policy/v1beta1"}},
		{"b", "policy/v1", "PodDisruptionBudget", nil},
		{"a", "policy/v7", "PodDisruptionBudget", nil}, // the hub converts no such version
		{"a", "example.com/v1", "Widget", []string{"example.com/v1beta1", "example.com/v1alpha1"}},
		{"b", "example.com/v1", "Widget", nil},
		{"a", "example.com/v1", "Gadget", nil},
		{"a", "v1", "ConfigMap", nil},
	} {
		if got := of(tc.cluster).ListReplacements(tc.apiVersion, tc.kind); !slices.Equal(got, tc.want) {
			t.Errorf("%s in %s: %v, want %v", tc.apiVersion, tc.cluster, got, tc.want)
		}
	}
	if of("c") != nil || of("d") != nil {
		t.Error("versions of clusters are known whose set of APIs is not")
	}
	hub := v.GetHubVersions()
	if got := hub.ListOtherVersions("example.com/v1beta1", "Widget"); !slices.Equal(got, []string{"example.com/v1", "example.com/v1alpha1"}) {
		t.Errorf("the hub converts to %v", got)
	}
	if got := hub.ListOtherVersions("example.com/v1", "Widget"); !slices.Equal(got, []string{"example.com/v1beta1", "example.com/v1alpha1"}) {
		t.Errorf("the list was changed: %v", got)
	}
}

func TestObjectsAreConvertedByTheHubOrByTheirApiVersionAlone(t *testing.T) {
	v, of := versionWorld(t, map[string][]string{"old": {"example.com/v1beta1/Widget"}}, map[string]string{"a": "old"})
	v.put(widgetDefinition(nil, nil, "v1", "v1beta1"))
	widget := map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"size": int64(1)}}
	got, err := of("a").ConvertObject(widget, "example.com/v1beta1")
	if want := map[string]any{"apiVersion": "example.com/v1beta1", "kind": "Widget", "spec": map[string]any{"size": int64(1)}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("a custom object: %v, %v", got, err)
	}
	got["spec"].(map[string]any)["size"] = int64(2)
	if widget["apiVersion"] != "example.com/v1" || widget["spec"].(map[string]any)["size"] != int64(1) {
		t.Errorf("the argument changed: %v", widget)
	}
	budget := map[string]any{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
	if got, err := of("a").ConvertObject(budget, "policy/v1beta1"); err != nil || got["converted"] != true {
		t.Errorf("a built-in kind: %v, %v", got, err)
	}
	budget["spec"] = "lost"
	if _, err := of("a").ConvertObject(budget, "policy/v1beta1"); err == nil || err.Error() != "cannot hold /spec" {
		t.Errorf("a loss: %v", err)
	}
}

// A definition whose versions differ by more than their names is not converted between.
func TestDefinitionsWithAWebhookConvertNothing(t *testing.T) {
	for name, crd := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"a webhook":              widgetDefinition(&apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}, nil, "v1", "v1beta1"),
		"a webhook that is kept": widgetDefinition(nil, map[string]string{atoll.AnnotationConversion: `{"strategy":"Webhook"}`}, "v1", "v1beta1"),
		"one version":            widgetDefinition(nil, nil, "v1"),
		"one served version":     widgetDefinition(nil, nil, "v1", "v0"),
	} {
		v, of := versionWorld(t, map[string][]string{"old": {"example.com/v1beta1/Widget"}}, map[string]string{"a": "old"})
		v.put(crd)
		if got := of("a").ListReplacements("example.com/v1", "Widget"); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A change of a definition is notified of the clusters alone that may get another version by it. Their versions
// stay when the hub's definition goes.
func TestAChangedDefinitionNotifiesOfTheClustersThatItConcerns(t *testing.T) {
	v, of := versionWorld(t, map[string][]string{
		"old": {"example.com/v1beta1/Widget"}, "both": {"example.com/v1/Widget", "example.com/v1beta1/Widget"}, "none": {"/v1/Pod"},
	}, map[string]string{"a": "old", "b": "both", "c": "none"})
	var notified []string
	v.Subscribe(func(name string) { notified = append(notified, name) })
	both, none := of("b"), of("c")
	before := v.GetHubVersions()
	v.put(widgetDefinition(nil, nil, "v1", "v1beta1"))
	v.put(widgetDefinition(nil, nil, "v1", "v1beta1"))
	if v.GetHubVersions() == before || !slices.Equal(notified, []string{"a"}) || of("b") != both || of("c") != none {
		t.Errorf("notified of %v", notified)
	}
	after := v.GetHubVersions()
	v.put(widgetDefinition(nil, nil, "v1", "v1beta1"))
	v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "more"}, APIs: []string{"example.com/v1beta1/Widget"}})
	if v.GetHubVersions() != after {
		t.Error("what a member serves, or an equal definition, changed what the hub converts")
	}
	v.removeObject(widgetDefinition(nil, nil, "v1", "v1beta1"))
	if got := of("a").ListReplacements("example.com/v1", "Widget"); !slices.Equal(got, []string{"example.com/v1beta1"}) {
		t.Errorf("without the definition: %v", got)
	}
	v.put(widgetDefinition(nil, nil, "v1"))
	if got := of("a").ListReplacements("example.com/v1", "Widget"); got != nil || !slices.Equal(notified, []string{"a", "a"}) {
		t.Errorf("with one version: %v, notified of %v", got, notified)
	}
}

// A Cluster that names a set of APIs before the table has it gets what it got until then.
func TestVersionsStayUntilTheNextSetIsKnown(t *testing.T) {
	table := newClusters()
	v := newViews(table, budgetConverter{})
	v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "old"}, APIs: []string{"policy/v1beta1/PodDisruptionBudget"}})
	view := func(hash string) atoll.MemberVersions {
		return v.ViewOf(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1alpha1.ClusterStatus{APIsHash: hash}}).Versions
	}
	old := view("old")
	if old == nil || view("next") != old {
		t.Error("the versions of the last known set are gone")
	}
	v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "next"}, APIs: []string{"policy/v1/PodDisruptionBudget"}})
	if next := view("next"); next == nil || next == old {
		t.Errorf("of the next set: %v", next)
	}
}

// Clusters that are only supposed, as those of a plan, leave no trace in the memory of those that exist, and a Cluster that is gone leaves
// none either.
func TestWhatIsRememberedOfAClusterIsItsOwn(t *testing.T) {
	table := newClusters()
	v := newViews(table, budgetConverter{})
	for hash, version := range map[string]string{"old": "policy/v1beta1", "new": "policy/v1"} {
		v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: hash}, APIs: []string{version + "/PodDisruptionBudget"}})
	}
	cluster := func(hash string) *v1alpha1.Cluster {
		return &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u"}, Status: v1alpha1.ClusterStatus{APIsHash: hash}}
	}
	table.put(cluster("old"))
	old := v.ViewOf(cluster("old")).Versions
	supposed := v.SupposeWritten(table)
	if is := supposed.ViewOf(cluster("new")).Versions; is == nil || is == old {
		t.Errorf("the supposed cluster has %v", is)
	}
	if is := v.ViewOf(cluster("unknown")).Versions; is != old {
		t.Error("the supposed cluster changed the one that exists")
	}
	table.removeObject(cluster("old"))
	if is := v.ViewOf(cluster("unknown")).Versions; is != nil {
		t.Errorf("of a cluster that is gone, %v is remembered", is)
	}
}

// A member that serves a kind more is no other cluster to rendering: nothing that is kept for its versions is lost, and no row is rendered
// again.
func TestClustersWithEqualReplacementsShareTheirVersions(t *testing.T) {
	v, of := versionWorld(t, map[string][]string{
		"one":   {"example.com/v1beta1/Widget", "/v1/Pod"},
		"more":  {"example.com/v1beta1/Widget", "/v1/Pod", "other.example/v1/Thing"},
		"new":   {"example.com/v1/Widget", "example.com/v1beta1/Widget"},
		"plain": {"/v1/Pod"},
	}, map[string]string{"a": "one", "b": "more", "c": "new", "d": "plain"})
	v.put(widgetDefinition(nil, nil, "v1", "v1beta1"))
	if of("a") != of("b") || of("c") != of("d") || of("a") == of("c") {
		t.Errorf("%v, %v, %v and %v", of("a"), of("b"), of("c"), of("d"))
	}
	before := of("a")
	v.put(&enginev1.APISet{ObjectMeta: metav1.ObjectMeta{Name: "later"}, APIs: []string{"example.com/v1beta1/Widget", "/v1/Secret"}})
	if is := v.ViewOf(&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Status: v1alpha1.ClusterStatus{APIsHash: "later"}}).Versions; is != before {
		t.Errorf("a set that came later has %v", is)
	}
	v.put(widgetDefinition(nil, nil, "v1"))
	if of("a") != of("c") {
		t.Errorf("without conversions: %v and %v", of("a"), of("c"))
	}
}
