package undo

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/undo/history"
)

const (
	confQuery   = "kind=ConfigMap&namespace=shop&name=conf&revision=10"
	confPresent = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"conf","namespace":"shop","uid":"uid-conf","resourceVersion":"12"},"data":{"b":"2"}}`
)

// askStep sends a question of a user for a step.
func askStep(k *Keeper, name, query, body string) (int, string) {
	r := httptest.NewRequest(http.MethodPost, atoll.UndoPath+"?"+query, strings.NewReader(body))
	w := httptest.NewRecorder()
	k.ServeUndo(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: name})))
	return w.Code, w.Body.String()
}

func TestTheStepOfAQuestion(t *testing.T) {
	k, _ := keeperWithSecret(t)
	code, body := askStep(k, "bob", confQuery, `{"present":`+confPresent+`}`)
	var s history.Step
	if err := json.Unmarshal([]byte(body), &s); err != nil || code != http.StatusOK {
		t.Fatalf("%d, %v: %s", code, err, body)
	}
	if s.Patch != `{"data":{"a":"1","b":null},"metadata":{"resourceVersion":"12","uid":"uid-conf"}}` || s.Change.By != "ann" {
		t.Errorf("the step is %s", body)
	}
}

func TestRefusedSteps(t *testing.T) {
	k, _ := keeperWithSecret(t)
	good := `{"present":` + confPresent + `}`
	for name, c := range map[string]struct {
		user, query, body, why string
		code                   int
	}{
		"without the right":               {"eve", confQuery, good, "may not", 403},
		"without a revision":              {"ann", "kind=ConfigMap&namespace=shop&name=conf", good, "revision", 400},
		"an unknown revision":             {"ann", strings.Replace(confQuery, "=10", "=99", 1), good, "no change", 400},
		"a Secret":                        {"ann", "kind=Secret&namespace=shop&name=pass&revision=11", good, "Secrets", 400},
		"no JSON":                         {"ann", confQuery, "{", "no JSON", 400},
		"no object":                       {"ann", confQuery, "{}", "lacks", 400},
		"a list":                          {"ann", confQuery, `{"present":[]}`, "no JSON", 400},
		"another object":                  {"ann", confQuery, strings.Replace(good, `"conf"`, `"other"`, 1), "another object", 400},
		"another namespace":               {"ann", confQuery, strings.Replace(good, `"shop"`, `"other"`, 1), "another object", 400},
		"a live object of another":        {"ann", confQuery, `{"present":` + confPresent + `,"live":{"kind":"ConfigMap","metadata":{"name":"x"}}}`, "another object", 400},
		"no version":                      {"ann", confQuery, strings.Replace(good, `,"resourceVersion":"12"`, "", 1), "resourceVersion", 400},
		"an empty version":                {"ann", confQuery, strings.Replace(good, `"resourceVersion":"12"`, `"resourceVersion":""`, 1), "resourceVersion", 400},
		"no uid":                          {"ann", confQuery, strings.Replace(good, `"uid":"uid-conf",`, "", 1), "uid", 400},
		"a live object without a version": {"ann", confQuery, `{"present":` + confPresent + `,"live":` + strings.Replace(confPresent, `,"resourceVersion":"12"`, "", 1) + `}`, "resourceVersion", 400},
		"a former object":                 {"ann", confQuery, strings.Replace(good, "uid-conf", "uid-new", 1), "made again", 400},
		"one that goes":                   {"ann", confQuery, strings.Replace(good, `"uid":`, `"deletionTimestamp":"2026-11-29T12:00:00Z","uid":`, 1), "being deleted", 400},
		"too large":                       {"ann", confQuery, strings.Repeat(" ", maxStepBytes+1), "3 MiB", 413},
	} {
		if code, body := askStep(k, c.user, c.query, c.body); code != c.code || !strings.Contains(body, c.why) || strings.Contains(body, `"patch"`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
}

// A sender that is slow holds no memory of the hub: it is reserved once the body is there.
func TestMemoryIsReservedAfterTheBody(t *testing.T) {
	k, _ := keeperWithSecret(t)
	var body *countingReader
	reservedAfter := -1
	k.options.ReserveMemory = func(_, _ string, n int64) (func(), error) {
		if want := int64(16*history.MaxContentBytes + 16*body.read); n != want {
			t.Errorf("%d bytes are reserved, want %d", n, want)
		}
		reservedAfter = body.read
		return func() {}, nil
	}
	text := `{"present":` + confPresent + `}`
	body = &countingReader{from: strings.NewReader(text)}
	r := httptest.NewRequest(http.MethodPost, atoll.UndoPath+"?"+confQuery, body)
	w := httptest.NewRecorder()
	k.ServeUndo(w, r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "ann"})))
	if w.Code != http.StatusOK || reservedAfter != len(text) {
		t.Errorf("%d: memory is reserved after %d bytes of %d", w.Code, reservedAfter, len(text))
	}
}

// countingReader counts what was read.
type countingReader struct {
	from io.Reader
	read int
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.from.Read(b)
	c.read += n
	return n, err
}
