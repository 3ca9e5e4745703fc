package script_test

import (
	"encoding/json"
	"strings"
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/kinds/script"
)

func dependencyLibrary(rule *v1alpha1.InterpreterRule) *script.Library {
	return script.NewLibrary([]*v1alpha1.ResourceInterpreter{newTestInterpreter("a", trainers, v1alpha1.ResourceInterpreterSpec{Dependencies: rule})})
}

// A forbidden or unreadable reference is an error that names it.
func TestDependenciesThatCannotBeFollowed(t *testing.T) {
	byLabels := func(selector string) string {
		return `[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop', 'labelSelector': ` + selector + `}]`
	}
	kind := func(apiVersion, kind, how string) string {
		return `[{'apiVersion': '` + apiVersion + `', 'kind': '` + kind + `', 'namespace': 'shop', ` + how + `}]`
	}
	const named, labelled = `'name': 'x'`, `'labelSelector': {'matchLabels': {'a': 'b'}}`
	for answer, why := range map[string]string{
		`[{'apiVersion': 'scheduling.k8s.io/v1', 'kind': 'PriorityClass', 'name': 'high'}]`:         `PriorityClass high is in namespace ""`,
		`[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'other', 'name': 'x'}]`:            `ConfigMap x is in namespace "other"`,
		`[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'labelSelector': {'matchLabels': {'a': 'b'}}}]`: `ConfigMap by labels is in namespace ""`,
		`[{'apiVersion': 'v1', 'kind': 'ConfigMap', 'namespace': 'shop'}]`:                          "needs an apiVersion, a kind and a name or a labelSelector",
		byLabels(`'a=b'`):                        "labelSelector is",
		byLabels(`{'matchlabels_': {'a': 'b'}}`): "unknown field",
		byLabels(`{'matchExpressions': [{'key': 'a', 'operator': 'Near', 'values': ['b']}]}`): "Near",
		byLabels(`{'matchLabels': {'a b': 'c'}}`):                                             "labelSelector",
		byLabels(`{'matchLabels': {'atoll.dev/tenant': 'x'}}`):                                "the hub's own",
		kind("rbac.authorization.k8s.io/v1", "RoleBinding", named):                            "it gives rights",
		kind("rbac.authorization.k8s.io/v1", "Role", labelled):                                "it gives rights",
		kind("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", named):      "it steers an API server",
		kind("apiregistration.k8s.io/v1", "APIService", named):                                "it steers an API server",
		kind("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", named):                          "it steers an API server",
		kind("apiextensions.k8s.io/v1", "CustomResourceDefinition", named):                    "it goes with the objects of its kind",
		kind("v1", "Namespace", named):                                                        "something in it is placed",
		kind("atoll.dev/v1alpha1", "PropagationPolicy", labelled):                             "the hub's own API",
		kind("engine.atoll.dev/v1alpha1", "Revision", named):                                  "the hub's own API",
		kind("v1", "Event", labelled):                                                         "machinery",
		kind("coordination.k8s.io/v1", "Lease", named):                                        "machinery",
		kind("apps/v1", "ReplicaSet", labelled):                                               "made from a Deployment",
	} {
		if _, err := dependencyLibrary(celRule(answer)).Interpreters.InterpretTemplate(newTrainer(nil)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, which does not say %q", answer, err, why)
		}
	}
}

// Equal selectors give one text. A name counts before labels, as in Karmada. nil is no answer,
// and an empty list is one.
func TestWhatDependenciesComeTo(t *testing.T) {
	const by = `'apiVersion': 'v1', 'kind': 'Secret', 'namespace': 'shop'`
	for _, tc := range []struct {
		rule *v1alpha1.InterpreterRule
		want string
	}{
		{celRule(`[{` + by + `, 'labelSelector': {'matchLabels': {'b': '2', 'a': '1'}}}, {` + by + `, 'labelSelector': {'matchExpressions': [{'key': 'b', 'operator': 'In', 'values': ['2']}], 'matchLabels': {'a': '1'}}}]`),
			`{"pods":null,"selections":[{"kind":"Secret","namespace":"shop","labels":"a=1,b in (2)"},{"kind":"Secret","namespace":"shop","labels":"a=1,b=2"}],"depends":true}`},
		{celRule(`[{` + by + `, 'labelSelector': {'matchLabels': {'b': '2', 'a': '1'}}}, {` + by + `, 'labelSelector': {'matchLabels': {'a': '1', 'b': '2'}}}]`),
			`{"pods":null,"selections":[{"kind":"Secret","namespace":"shop","labels":"a=1,b=2"}],"depends":true}`},
		{celRule(`[{` + by + `, 'labelSelector': {}}]`), `{"pods":null,"selections":[{"kind":"Secret","namespace":"shop"}],"depends":true}`},
		{celRule(`[{` + by + `, 'name': 'key', 'labelSelector': {'matchLabels': {'a': '1'}}}]`), `{"pods":null,"dependencies":["/Secret/shop/key"],"depends":true}`},
		{luaRule(`function GetDependencies(obj) return {{apiVersion = "apps/v1", kind = "Deployment", namespace = "shop", labelSelector = {matchExpressions = {{key = "a", operator = "Exists"}}}}} end`),
			`{"pods":null,"selections":[{"group":"apps","kind":"Deployment","namespace":"shop","labels":"a"}],"depends":true}`},
		{luaRule(`function GetDependencies(obj) return {} end`), `{"pods":null,"depends":true}`},
		{celRule(`[]`), `{"pods":null,"depends":true}`},
		{luaRule(`function GetDependencies(obj) return nil end`), `{"pods":null}`},
		{luaRule(`function GetDependencies(obj) end`), `{"pods":null}`},
		{celRule(`null`), `{"pods":null}`},
	} {
		answers, err := dependencyLibrary(tc.rule).Interpreters.InterpretTemplate(newTrainer(nil))
		if err != nil {
			t.Errorf("%+v: %v", *tc.rule, err)
			continue
		}
		answers.AnsweredBy = ""
		if got, err := json.Marshal(answers); err != nil || string(got) != tc.want {
			t.Errorf("%+v: %v\n got %s\nwant %s", *tc.rule, err, got, tc.want)
		}
	}
	// An invalid selector does not select everything.
	if _, err := dependencyLibrary(luaRule(`function GetDependencies(obj) return {{apiVersion = "v1", kind = "Secret", namespace = "shop", labelSelector = {matchLabels = obj.spec.nothing}}} end`)).Interpreters.InterpretTemplate(newTrainer(nil)); err == nil {
		t.Error("no labels select everything")
	}
}
