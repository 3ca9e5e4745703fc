package history

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

func parseList(t *testing.T, text string) []any {
	t.Helper()
	list, _ := parse(t, `{"l":`+text+`}`)["l"].([]any)
	return list
}

func TestTheUsualManager(t *testing.T) {
	for name, c := range map[string]struct {
		managed string
		want    Manager
	}{
		"none":                       {`[]`, Manager{}},
		"kubectl apply":              {`[{"manager":"helm","operation":"Apply"},{"manager":"kubectl-client-side-apply","operation":"Update"}]`, Manager{Name: "kubectl-client-side-apply"}},
		"an applier":                 {`[{"manager":"kubectl-edit","operation":"Update"},{"manager":"kubectl","operation":"Apply"},{"manager":"argo","operation":"Apply"}]`, Manager{Name: "kubectl", Applies: true}},
		"the first one":              {`[{"manager":"a","operation":"Update"},{"manager":"b","operation":"Update"}]`, Manager{Name: "a"}},
		"not the hub":                {`[{"manager":"atoll-hub","operation":"Update"},{"manager":"b","operation":"Update"}]`, Manager{Name: "b"}},
		"not that of a subresource":  {`[{"manager":"s","operation":"Update","subresource":"status"},{"manager":"b","operation":"Update"}]`, Manager{Name: "b"}},
		"an entry that is malformed": {`[7,{"manager":3},{"manager":"b","operation":"Update"}]`, Manager{Name: "b"}},
	} {
		if got := UsualManager(parseList(t, c.managed), "atoll-hub"); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestOwnersOfACreatedObject(t *testing.T) {
	former := parseList(t, `[{"manager":"kubectl","operation":"Apply","f":1},{"manager":"label","operation":"Update"},{"manager":"hub","operation":"Update","subresource":"status","f":"old"}]`)
	live := parseList(t, `[{"manager":"kubectl","operation":"Update","f":"all"},{"manager":"hub","operation":"Update","subresource":"status","f":"new"},{"manager":"label","operation":"Update","f":"x"},{"manager":"other","operation":"Update"}]`)
	want := `[{"f":1,"manager":"kubectl","operation":"Apply"},{"manager":"label","operation":"Update"},{"f":"new","manager":"hub","operation":"Update","subresource":"status"},{"manager":"other","operation":"Update"}]`
	if got := formatJSON(t, RestoreOwnership(live, former, "kubectl")); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestOwnersOfATakenBackEdit(t *testing.T) {
	before := parseList(t, `[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:spec":{"f:a":{}}}}]`)
	former := parseList(t, `[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}},"f:x":{}}}]`)
	written := func(fields string) []any {
		return parseList(t, `[{"manager":"kubectl","operation":"Apply","apiVersion":"v1","fieldsV1":{"f:spec":{"f:a":{}}}},{"manager":"kubectl","operation":"Update","apiVersion":"v1","fieldsV1":`+fields+`},{"manager":"hub","operation":"Update","subresource":"status"}]`)
	}
	live := written(`{"f:spec":{"f:b":{}},"f:x":{}}`)
	joined := `[{"apiVersion":"v1","fieldsV1":{"f:spec":{"f:a":{},"f:b":{}},"f:x":{}},"manager":"kubectl","operation":"Apply"},`
	status := `{"manager":"hub","operation":"Update","subresource":"status"}]`
	kubectl := Manager{Name: "kubectl", Applies: true}
	if got := formatJSON(t, JoinOwnership(former, before, live, kubectl)); got != joined+status {
		t.Errorf("got  %s\nwant %s", got, joined+status)
	}
	// Replicas that only a scale set are not among what kubectl applies: its next apply would remove them.
	rest := `{"apiVersion":"v1","fieldsV1":{"f:spec":{"f:replicas":{}}},"manager":"kubectl","operation":"Update"},`
	if got := formatJSON(t, JoinOwnership(former, before, written(`{"f:spec":{"f:b":{},"f:replicas":{}},"f:x":{}}`), kubectl)); got != joined+rest+status {
		t.Errorf("got  %s\nwant %s", got, joined+rest+status)
	}
	for name, out := range map[string][]any{
		"a manager that updates":             JoinOwnership(former, before, live, Manager{Name: "kubectl"}),
		"a manager that updated before":      JoinOwnership(former, live, live, kubectl),
		"a write that changed nothing":       JoinOwnership(former, before, before, kubectl),
		"a manager that no longer applies":   JoinOwnership(former, before, live[1:], kubectl),
		"a manager that writes nothing here": JoinOwnership(former, nil, nil, kubectl),
		"a field that only a scale set":      JoinOwnership(former, before, written(`{"f:spec":{"f:replicas":{}}}`), kubectl),
	} {
		if out != nil {
			t.Errorf("%s: %s", name, formatJSON(t, out))
		}
	}
}

func TestTheExtractedContent(t *testing.T) {
	obj := parse(t, `{"kind":"X","status":{"a":1},"spec":{"b":2},"metadata":{"name":"n","uid":"u","resourceVersion":"1","generation":3,"managedFields":[],"finalizers":["f"],"ownerReferences":[],"creationTimestamp":"t","labels":{"l":"v"}}}`)
	was := formatJSON(t, obj)
	if got := formatJSON(t, ExtractContent(obj)); got != `{"kind":"X","metadata":{"labels":{"l":"v"},"name":"n"},"spec":{"b":2}}` {
		t.Errorf("the content is %s", got)
	}
	if formatJSON(t, obj) != was {
		t.Error("the object was changed")
	}
}

func TestContentsThatAreCreatedAgain(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"a Job": {
			`{"apiVersion":"batch/v1","kind":"Job","spec":{"selector":{"matchLabels":{"controller-uid":"u"}},"template":{"metadata":{"labels":{"app":"a","controller-uid":"u","batch.kubernetes.io/job-name":"j","job-name":"j","batch.kubernetes.io/controller-uid":"u"}}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"metadata":{"labels":{"app":"a"}}}}}`,
		},
		"a Job with its own selector": {
			`{"apiVersion":"batch/v1","kind":"Job","spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}}}}`,
		},
		"a Service with an address of the hub": {
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":%q,"clusterIPs":[%q],"type":"ClusterIP"}}`, atoll.DummyIPv4, atoll.DummyIPv4),
			`{"apiVersion":"v1","kind":"Service","spec":{"type":"ClusterIP"}}`,
		},
		"a headless Service": {`{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":"None"}}`, `{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":"None"}}`},
		"another kind":       {`{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"b"}}`, `{"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap"}`},
	} {
		content := parse(t, c.content)
		if got := formatJSON(t, PrepareCreation(content)); got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		if formatJSON(t, content) != formatJSON(t, parse(t, c.content)) {
			t.Errorf("%s: the content was changed", name)
		}
	}
}

// A Service that was made again keeps its address, which the API lets no write change. A stated one is compared.
func TestAServiceThatWasMadeAgainKeepsItsAddress(t *testing.T) {
	service := func(address, port string) map[string]any {
		return parse(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Service","spec":{"clusterIP":%q,"clusterIPs":[%q],"port":%s}}`, address, address, port))
	}
	second := atoll.DummyIPv4Range.Addr().Next().Next().String()
	target := Target{Whole: true, Content: Content{Object: service(atoll.DummyIPv4, "80")}}
	if got, want := formatJSON(t, target.Revert(service(second, "81"))), formatJSON(t, service(second, "80")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	target.Object = service("None", "80")
	if got, want := formatJSON(t, target.Revert(service(second, "81"))), formatJSON(t, service("None", "80")); got != want {
		t.Errorf("a headless one: got %s, want %s", got, want)
	}
}

func TestContentsGoThereAndBack(t *testing.T) {
	in := &Content{Object: parse(t, `{"a":1,"b":1.5,"c":[null,true]}`), ManagedFields: []any{map[string]any{"manager": "m"}}, Changed: Fields{"a": {"b": nil}}}
	raw, err := EncodeContent(in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := DecodeContent(raw)
	if err != nil || fmt.Sprintf("%#v", out.Object) != fmt.Sprintf("%#v", in.Object) || formatJSON(t, out) != formatJSON(t, in) {
		t.Errorf("%+v, %v", out, err)
	}
	if _, err := EncodeContent(&Content{Object: map[string]any{"a": strings.Repeat("x", MaxContentBytes)}}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a content that is too large: %v", err)
	}
	// A small text that decompresses to a large one is not read whole.
	var bomb bytes.Buffer
	w := gzip.NewWriter(&bomb)
	for range 2 * MaxContentBytes / (1 << 20) {
		_, _ = w.Write(bytes.Repeat([]byte{' '}, 1<<20)) // a Buffer takes everything
	}
	_ = w.Close()
	for name, raw := range map[string][]byte{"a bomb": bomb.Bytes(), "no gzip": []byte("{}"), "cut": raw[:len(raw)-6], "too long": make([]byte, MaxObjectBytes+1)} {
		if _, err := DecodeContent(raw); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}

func TestDescriptionsOfChanges(t *testing.T) {
	c := newChange("shop", "web", 1, 0)
	raw, err := EncodeChange(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeChange("id", raw, 100)
	if err != nil || got.ID != "id" || got.Object != c.Object || !got.At.Equal(c.At) || got.Bytes != 100+int64(len(raw))+changeOverhead {
		t.Errorf("%+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"nothing": `{}`, "no JSON": `x`, "an unknown operation": strings.Replace(string(raw), "Edited", "Painted", 1),
		"no revision": strings.Replace(string(raw), `"revision":"1"`, `"revision":""`, 1), "too long": string(raw) + strings.Repeat(" ", maxChangeBytes),
	} {
		if _, err := DecodeChange("id", []byte(text), 0); err == nil {
			t.Errorf("%s is read", name)
		}
	}
	c.Fields = []string{strings.Repeat("f", maxChangeBytes)}
	if _, err := EncodeChange(c); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a description that is too long: %v", err)
	}
}
