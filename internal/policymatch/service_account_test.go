package policymatch

import (
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// The Namespace's ServiceAccount comes before that of rules. A plain name is in the object's namespace.
func TestTheServiceAccountOfAnObject(t *testing.T) {
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	role := atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "r"}
	for name, c := range map[string]struct {
		rule, ofNamespace, bundleNamespace string
		key                                atoll.ItemKey
		want                               string
		refused                            string
	}{
		"none":                                   {key: conf},
		"of a rule":                              {rule: "deployer", key: conf, want: "shop/deployer"},
		"of another namespace":                   {rule: "ops/deployer", key: conf, want: "ops/deployer"},
		"the Namespace's comes first":            {rule: "ops/mighty", ofNamespace: "shop/deployer", key: conf, want: "shop/deployer"},
		"the Namespace's alone":                  {ofNamespace: "shop/deployer", key: conf, want: "shop/deployer"},
		"of a Namespace":                         {rule: "deployer", key: atoll.NamespaceKey("blog"), want: "blog/deployer"},
		"of a dependency without a namespace":    {rule: "deployer", bundleNamespace: "shop", key: role, want: "shop/deployer"},
		"of an object without a namespace":       {rule: "deployer", key: role, refused: "the object has no namespace in which ServiceAccount \"deployer\" could be: write NAMESPACE/NAME"},
		"qualified, without a namespace":         {rule: "ops/deployer", key: role, want: "ops/deployer"},
		"malformed":                              {rule: "a/b/c", key: conf, refused: "names no ServiceAccount"},
		"of a path":                              {rule: "../deployer", key: conf, refused: "names no ServiceAccount"},
		"with the prefix of a user":              {rule: "system:serviceaccount:shop:deployer", key: conf, refused: "names no ServiceAccount"},
		"a namespace alone":                      {rule: "shop/", key: conf, refused: "names no ServiceAccount"},
		"a name alone, with its slash":           {rule: "/deployer", key: conf, refused: "names no ServiceAccount"},
		"in capitals":                            {rule: "Deployer", key: conf, refused: "names no ServiceAccount"},
		"huge":                                   {rule: strings.Repeat("a", 1<<20), key: conf, refused: "names no ServiceAccount"},
		"a malformed one of the Namespace fails": {rule: "deployer", ofNamespace: "a b", key: conf, refused: "names no ServiceAccount"},
	} {
		t.Run(name, func(t *testing.T) {
			rules := CompileItemRules([]v1alpha1.ItemRule{{ServiceAccount: c.rule, Removal: v1alpha1.RemoveOrphan}})
			treatment, err := rules.TreatmentOf(Subject{Key: c.key})
			if err != nil {
				t.Fatal(err)
			}
			before := *treatment
			got, err := WithServiceAccount(treatment, c.ofNamespace, c.key, c.bundleNamespace)
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || len(err.Error()) > 250 {
					t.Errorf("%v, want %s", err, c.refused)
				}
				return
			}
			want := &atoll.Treatment{Removal: v1alpha1.RemoveOrphan, ServiceAccount: c.want}
			if err != nil || !reflect.DeepEqual(got, want) || !reflect.DeepEqual(*treatment, before) {
				t.Errorf("%+v, %v, want %+v, from %+v", got, err, want, before)
			}
		})
	}
	if got, err := WithServiceAccount(nil, "", conf, "shop"); got != nil || err != nil {
		t.Errorf("without any: %+v, %v", got, err)
	}
	if got, err := WithServiceAccount(nil, "shop/a", conf, "shop"); err != nil || got.ServiceAccount != "shop/a" {
		t.Errorf("without a rule: %+v, %v", got, err)
	}
}

// The annotation counts on a Namespace alone, and in a form that names a ServiceAccount.
func TestTheAnnotationThatNamesAServiceAccount(t *testing.T) {
	for value, want := range map[string]string{"deployer": "", "ops/deployer": "", "": "names no ServiceAccount", "a/b/c": "names no ServiceAccount", "*": "names no ServiceAccount"} {
		annotations := map[string]string{"atoll.dev/service-account": value}
		if err := CheckServiceAccountAnnotation(true, annotations); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q on a Namespace: %v, want %q", value, err, want)
		}
		if err := CheckServiceAccountAnnotation(false, annotations); err == nil || !strings.Contains(err.Error(), "counts on a Namespace alone") {
			t.Errorf("%q on another object: %v", value, err)
		}
	}
	if err := CheckServiceAccountAnnotation(false, nil); err != nil {
		t.Error(err)
	}
}
