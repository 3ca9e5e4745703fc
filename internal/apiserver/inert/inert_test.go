package inert

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestLabel(t *testing.T) {
	type labels = map[string]string
	const inert, hub = "atoll.dev/inert", "atoll.dev/hub"
	for name, c := range map[string]struct {
		obj, old, want labels
		update         bool
	}{
		"created":                       {obj: nil, want: labels{inert: "true"}},
		"created with labels":           {obj: labels{"a": "b"}, want: labels{"a": "b", inert: "true"}},
		"created for the hub":           {obj: labels{hub: "true"}, want: labels{hub: "true"}},
		"created for the hub and inert": {obj: labels{hub: "true", inert: "true"}, want: labels{hub: "true"}},
		"any other value is not yes":    {obj: labels{hub: "yes"}, want: labels{hub: "yes", inert: "true"}},
		"false is inert":                {obj: labels{inert: "false"}, want: labels{inert: "true"}},
		"replaced without labels":       {update: true, old: labels{inert: "true"}, obj: nil, want: labels{inert: "true"}},
		"toggled on":                    {update: true, old: labels{inert: "true"}, obj: labels{inert: "true", hub: "true"}, want: labels{hub: "true"}},
		"toggled off":                   {update: true, old: labels{hub: "true"}, obj: nil, want: labels{inert: "true"}},
		"the hub's own, edited":         {update: true, old: nil, obj: labels{"a": "b"}, want: labels{"a": "b"}},
		"the hub's own, made inert":     {update: true, old: nil, obj: labels{inert: "true"}, want: labels{inert: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &metav1.ObjectMeta{Labels: maps.Clone(c.obj)}
			var old metav1.Object
			if c.update {
				old = &metav1.ObjectMeta{Labels: c.old}
			}
			updateInertLabel(obj, old)
			if !maps.Equal(obj.Labels, c.want) {
				t.Errorf("got %v, want %v", obj.Labels, c.want)
			}
		})
	}
}

func TestHiddenAndExcluded(t *testing.T) {
	list := request.RequestInfo{Verb: "list", APIGroup: "", Resource: "resourcequotas"}
	get, pods := list, list
	get.Verb, pods.Resource = "get", "pods"
	if !NeedsInertFilter(&list) || NeedsInertFilter(&get) || NeedsInertFilter(&pods) {
		t.Error("lists of quotas, and only those, leave inert objects out")
	}
	if got := ExcludeInertObjects(""); got != "atoll.dev/inert!=true" {
		t.Error(got)
	}
	if got := ExcludeInertObjects("a=b"); got != "a=b,atoll.dev/inert!=true" {
		t.Error(got)
	}
}
