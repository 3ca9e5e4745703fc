package objectdiff

import (
	"reflect"
	"testing"
)

// A part of a document keeps a value of before at each path that Compare gives, and no other value.
func TestKeepBefore(t *testing.T) {
	const doc = `{"spec": {"replicas": 3, "list": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`
	for name, c := range map[string]struct {
		path          string
		before, after any
		want          string
	}{
		"a field":                             {"/spec/replicas", float64(7), float64(3), `{"spec": {"replicas": 7, "list": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`},
		"a field that was not there":          {"/spec/replicas", nil, float64(3), `{"spec": {"list": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`},
		"a key with a slash":                  {"/data/a~1b", "y", "x", `{"spec": {"replicas": 3, "list": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "y"}}`},
		"a field of a named element":          {"/spec/containers/name=web/image", "old", "new", `{"spec": {"replicas": 3, "list": ["a", "b"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "old"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`},
		"an element":                          {"/spec/list/1", "c", "b", `{"spec": {"replicas": 3, "list": ["a", "c"], "ports": [{"port": 1}, {"port": 2}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`},
		"a field of an element":               {"/spec/ports/1/port", float64(9), float64(2), `{"spec": {"replicas": 3, "list": ["a", "b"], "ports": [{"port": 1}, {"port": 9}], "containers": [{"name": "web", "image": "new"}, {"name": "log", "image": "l"}]}, "data": {"a/b": "x"}}`},
		"an element of a list of other ones":  {"/spec/ports/1/port", float64(9), float64(5), doc},
		"an element that is not there":        {"/spec/ports/2/port", float64(9), float64(5), doc},
		"a named element that is not there":   {"/spec/containers/name=db/image", "old", "new", doc},
		"a field below one that is not there": {"/spec/strategy/type", "Recreate", "RollingUpdate", doc},
		"a path that is none":                 {"spec", "a", "b", doc},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseMap(t, doc)
			KeepBefore(got, Difference{Path: c.path, Before: c.before, After: c.after})
			if want := parseMap(t, c.want); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
