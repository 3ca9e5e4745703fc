package atoll

import (
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The hub reads the foreign objects that an agent writes.
func TestForeignObjectsAsAStatus(t *testing.T) {
	for name, want := range map[string]ForeignObjects{
		"nothing": {},
		"objects": {Objects: []ForeignObject{{schema.GroupResource{Resource: "configmaps"}, "mine"}, {schema.GroupResource{Group: "apps", Resource: "deployments"}, "web"}, {schema.GroupResource{Resource: "roles", Group: "rbac.authorization.k8s.io"}, "system:reader"}}, More: 3},
		"partly":  {Unread: "the agent may not list secrets"},
	} {
		got, err := ForeignObjectsFromStatus(want.ToStatus())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// The hub refuses what no agent writes.
func TestHostileAnswersAboutForeignObjects(t *testing.T) {
	one := ForeignObjects{Objects: []ForeignObject{{schema.GroupResource{Resource: "configmaps"}, "mine"}}}
	for name, edit := range map[string]func(*metav1.Status){
		"an error":              func(s *metav1.Status) { s.Status = metav1.StatusFailure },
		"no details":            func(s *metav1.Status) { s.Details = nil },
		"no count":              func(s *metav1.Status) { s.RemainingItemCount = nil },
		"a negative count":      func(s *metav1.Status) { *s.RemainingItemCount = -1 },
		"a long message":        func(s *metav1.Status) { s.Message = strings.Repeat("x", 513) },
		"too many objects":      func(s *metav1.Status) { s.Details.Causes = make([]metav1.StatusCause, 21) },
		"no name":               func(s *metav1.Status) { s.Details.Causes[0].Field = "" },
		"a long name":           func(s *metav1.Status) { s.Details.Causes[0].Field = strings.Repeat("x", 254) },
		"no resource":           func(s *metav1.Status) { s.Details.Causes[0].Type = "" },
		"a resource of no form": func(s *metav1.Status) { s.Details.Causes[0].Type = "config maps\n" },
		"a long resource":       func(s *metav1.Status) { s.Details.Causes[0].Type = metav1.CauseType(strings.Repeat("x", 254)) },
	} {
		s := one.ToStatus()
		edit(s)
		if got, err := ForeignObjectsFromStatus(s); err == nil {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
}

func TestPathOfForeignObjects(t *testing.T) {
	if got, ok := NamespaceOfForeignObjectsPath(ForeignObjectsPath("shop")); !ok || got != "shop" {
		t.Errorf("the namespace is %q, %t", got, ok)
	}
	for _, path := range []string{"", "/api/v1/namespaces/shop/pods", ForeignObjectsPath(""), ForeignObjectsPath("a/b"), ForeignObjectsPath(".."), ForeignObjectsPath("shop") + "/x"} {
		if got, ok := NamespaceOfForeignObjectsPath(path); ok {
			t.Errorf("%s is of namespace %q", path, got)
		}
	}
}
