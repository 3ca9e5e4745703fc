package userfields_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/userfields"
)

// Server-side apply refuses a list with two elements of one key. Members get what has effect. Kinds of
// users have keys of their own.
func TestOfDuplicatesTheLastIsSent(t *testing.T) {
	const spec = `{hostAliases: [{ip: 10.0.0.1, hostnames: [a]}, {ip: 10.0.0.2, hostnames: [b]}, {ip: 10.0.0.1, hostnames: [c]}],
imagePullSecrets: [{name: pull}, {name: other}, {name: pull}],
containers: [{name: c, image: "i:1", env: [{name: A, value: "1"}, {name: B, value: "2"}, {name: A, value: "3"}],
  ports: [{containerPort: 80, protocol: TCP, name: old}, {containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP, name: new}]}]}`
	const once = `{hostAliases: [{ip: 10.0.0.2, hostnames: [b]}, {ip: 10.0.0.1, hostnames: [a, c]}],
imagePullSecrets: [{name: other}, {name: pull}],
containers: [{name: c, image: "i:1", env: [{name: B, value: "2"}, {name: A, value: "3"}],
  ports: [{containerPort: 80, protocol: UDP}, {containerPort: 80, protocol: TCP, name: new}]}]}`
	for _, tc := range []struct{ head, want string }{
		{"{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: ", once},
		{"{apiVersion: example.com/v1, kind: Toy, metadata: {name: p, namespace: shop}, spec: ", spec},
	} {
		var in, want map[string]any
		for _, y := range []struct {
			text string
			out  *map[string]any
		}{{tc.head + spec + "}", &in}, {tc.head + tc.want + "}", &want}} {
			if err := yaml.Unmarshal([]byte(y.text), y.out); err != nil {
				t.Fatal(err)
			}
		}
		body, err := userfields.ExtractUserFields(&unstructured.Unstructured{Object: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		if !isEqualJSON(t, got, want) {
			t.Errorf("%s\nwant %v", body, want)
		}
	}
}
