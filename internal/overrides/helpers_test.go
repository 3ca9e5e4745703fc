package overrides_test

import (
	"encoding/json"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/overrides"
)

var (
	webKey    = atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	secretKey = atoll.ItemKey{Kind: "Secret", Namespace: "shop", Name: "s"}
	jobKey    = atoll.ItemKey{Group: "batch", Kind: "Job", Namespace: "shop", Name: "j"}
	roleKey   = atoll.ItemKey{Group: "rbac.authorization.k8s.io", Kind: "Role", Namespace: "shop", Name: "r"}
)

const webObject = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"labels":{"app":"web"},"name":"web","namespace":"shop"},` +
	`"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"nginx:1","name":"a"},{"image":"r.io/b:1","name":"b"}],"initContainers":[{"image":"busybox","name":"i"}]}}}}`

func newItem(key atoll.ItemKey, object string) atoll.Item {
	return atoll.Item{Key: key, APIVersion: strings.TrimPrefix(key.Group+"/v1", "/"), UID: "u-" + key.Name, Object: json.RawMessage(object), Hash: atoll.HashParts([]byte(object))}
}

func newContent(rules ...atoll.Rule) *atoll.Content {
	return &atoll.Content{
		Items: []atoll.Item{
			newItem(secretKey, `{"apiVersion":"v1","data":{"p":"eA=="},"kind":"Secret","metadata":{"name":"s","namespace":"shop"}}`),
			newItem(webKey, webObject),
			newItem(jobKey, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j","namespace":"shop"},"spec":{"template":{"spec":{"containers":[{"image":"x","name":"c"}]}}}}`),
			newItem(roleKey, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r","namespace":"shop"},"rules":[]}`),
		},
		Rules: rules, ConflictResolution: v1alpha1.ConflictAbort, Removal: v1alpha1.RemoveDelete,
	}
}

func newRule(policy string, o v1alpha1.Overriders, keys ...atoll.ItemKey) atoll.Rule {
	return atoll.Rule{Policy: policy, Items: keys, Overriders: o, Semantics: atoll.CurrentRuleSemantics}
}

func plaintextOverriders(op v1alpha1.OverriderOperator, path, value string) v1alpha1.Overriders {
	p := v1alpha1.PlaintextOverrider{Operator: op, Path: path}
	if value != "" {
		p.Value = &apiextensionsv1.JSON{Raw: []byte(value)}
	}
	return v1alpha1.Overriders{Plaintext: []v1alpha1.PlaintextOverrider{p}}
}

func pointerOf[T any](v T) *T { return &v }

func renderedItem(t *testing.T, c *atoll.Content, in manifest.RenderInput, key atoll.ItemKey) (atoll.RenderedItem, []overrides.Provenance) {
	t.Helper()
	items, notes := manifest.RenderItems(c, in)
	var own []overrides.Provenance
	for _, n := range notes {
		if n.Item == key {
			own = append(own, n)
		}
	}
	for _, r := range items {
		if r.Key == key {
			return r, own
		}
	}
	t.Fatalf("no %s among %d items", key, len(items))
	return atoll.RenderedItem{}, nil
}
