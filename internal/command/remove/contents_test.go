package remove

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	enginev1 "atoll.dev/atoll/api/engine/v1alpha1"
	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/clienttest"
	"atoll.dev/atoll/internal/rowcodec"
)

const (
	tokyo = "00000000-0000-0000-0000-000000000001"
	oslo  = "00000000-0000-0000-0000-000000000002"
)

// placed is a row of a Bundle, in Tokyo unless it states otherwise.
type placed struct {
	bundle, cluster string
	spec            atoll.RowSpec
	status          *atoll.RowStatus
}

// hub answers for what is placed, by the path's last name, or the resource of a list.
type hub map[string]any

func (h hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	v := h[path.Base(r.URL.Path)]
	if status, refused := v.(metav1.Status); refused || v == nil {
		if v == nil {
			status = metav1.Status{Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		}
		status.Kind, status.APIVersion, status.Status = "Status", "v1", metav1.StatusFailure
		w.WriteHeader(int(status.Code))
		v = status
	}
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}

// newObject is an object as the API gives it.
func newObject(t *testing.T, name string, of any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	out["apiVersion"], out["kind"] = "v1", "Thing"
	out["metadata"].(map[string]any)["name"] = name
	return out
}

// hubWith rows, and Revisions of one ConfigMap, of the Revision's name, each.
func hubWith(t *testing.T, rows []placed, revisions ...string) hub {
	t.Helper()
	c := &v1alpha1.Cluster{}
	c.UID = tokyo
	h := hub{"tokyo": newObject(t, "tokyo", c)}
	for _, name := range revisions {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		fmt.Fprintf(z, `{"items":[{"key":%s}]}`, keyOf(t, name))
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		rev := &enginev1.Revision{Spec: enginev1.RevisionSpec{Content: packed.Bytes()}}
		if name == "secret" {
			rev.Spec.Parts = []enginev1.PartRef{{Name: "unreadable", Secret: true}}
			h["unreadable"] = metav1.Status{Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden}
		}
		h[name] = newObject(t, name, rev)
	}
	var all []any
	for i, p := range rows {
		s := &enginev1.TargetSlice{}
		s.Spec.Bundle = enginev1.BundleRef{UID: "b-" + p.bundle, Namespace: "shop", Name: p.bundle}
		s.Spec.Rows = rowcodec.JoinLines([]rowcodec.Line{{Cluster: p.cluster, Text: rowcodec.EncodeSpec(p.spec, nil)}})
		if p.status != nil {
			s.Status.Rows = rowcodec.JoinLines([]rowcodec.Line{{Cluster: p.cluster, Text: rowcodec.EncodeStatus(*p.status, nil)}})
		}
		all = append(all, newObject(t, fmt.Sprint("slice-", i), s))
	}
	h["targetslices"] = map[string]any{"apiVersion": "v1", "kind": "ThingList", "metadata": map[string]any{}, "items": all}
	return h
}

func keyOf(t *testing.T, name string) string {
	t.Helper()
	raw, err := json.Marshal(configMap(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func configMap(name string) atoll.ItemKey {
	return atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: name}
}

// The listed objects are in the cluster by the hub's records: also where the last report of a
// re-added row is still that it is removed.
func TestWhatIsInACluster(t *testing.T) {
	in := func(revision string, phase atoll.RowPhase, generation int64) atoll.RowSpec {
		return atoll.RowSpec{UID: tokyo, Generation: generation, Revision: revision, Phase: phase}
	}
	said := func(state atoll.RowState, generation int64) *atoll.RowStatus {
		return &atoll.RowStatus{UID: tokyo, Generation: generation, State: state}
	}
	away := func(spec atoll.RowSpec) atoll.RowSpec { spec.UID = oslo; return spec }
	out := in("r1", atoll.RowActive, 1)
	out.Absent = []string{configMap("r1").String()}
	for name, c := range map[string]struct {
		rows []placed
		want string // KIND name STATE ONLY, of each
	}{
		"it runs":                      {[]placed{{"web", "tokyo", in("r1", atoll.RowActive, 1), said(atoll.RowReady, 1)}}, "ConfigMap r1 Ready true"},
		"nothing was reported":         {[]placed{{"web", "tokyo", in("r1", atoll.RowActive, 1), nil}}, "ConfigMap r1  true"},
		"it is on its way out":         {[]placed{{"web", "tokyo", in("r1", atoll.RowRemoving, 2), said(atoll.RowReady, 1)}}, "ConfigMap r1 Ready true"},
		"it is gone":                   {[]placed{{"web", "tokyo", in("r1", atoll.RowRemoving, 2), said(atoll.RowRemoved, 2)}}, ""},
		"it came back":                 {[]placed{{"web", "tokyo", in("r1", atoll.RowActive, 3), said(atoll.RowRemoved, 2)}}, "ConfigMap r1  true"},
		"it came back, and goes again": {[]placed{{"web", "tokyo", in("r1", atoll.RowRemoving, 4), said(atoll.RowRemoved, 2)}}, "ConfigMap r1  true"},
		"a rule keeps it out":          {[]placed{{"web", "tokyo", out, said(atoll.RowReady, 1)}}, ""},
		"it runs elsewhere, too":       {[]placed{{"web", "tokyo", in("r1", atoll.RowActive, 1), nil}, {"web", "oslo", away(in("r1", atoll.RowActive, 1)), nil}}, "ConfigMap r1  false"},
		"it leaves elsewhere":          {[]placed{{"web", "tokyo", in("r1", atoll.RowActive, 1), nil}, {"web", "oslo", away(in("r1", atoll.RowLeaving, 1)), nil}}, "ConfigMap r1  true"},
		"it runs elsewhere alone":      {[]placed{{"web", "oslo", away(in("r1", atoll.RowActive, 1)), nil}}, ""},
		"a revision that is gone":      {[]placed{{"old", "tokyo", in("r0", atoll.RowRemoving, 1), nil}, {"web", "tokyo", in("r1", atoll.RowActive, 1), nil}}, "ConfigMap r1  true"},
		"a namespace alone":            {[]placed{{"", "tokyo", atoll.RowSpec{UID: tokyo, Generation: 1, Phase: atoll.RowVacant}, nil}}, "Namespace shop  false"},
		"unreadable Secrets":           {[]placed{{"web", "tokyo", in("secret", atoll.RowActive, 1), nil}}, "ConfigMap secret  true, Secret " + unread + "  true"},
	} {
		t.Run(name, func(t *testing.T) {
			out := clienttest.NewWriteLimitedBuffer()
			if err := clienttest.Run(t.Context(), t, hubWith(t, c.rows, "r1", "secret"), NewCommand, clienttest.Said{Out: out, Notes: clienttest.NewWriteLimitedBuffer()}, "tokyo", "--dry-run", "-o", "json"); err != nil {
				t.Fatal(err)
			}
			var found []appliedObject
			if err := json.Unmarshal([]byte(out.String()), &found); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got []string
			for _, o := range found {
				got = append(got, fmt.Sprintf("%s %s %s %t", o.Kind, o.Name, o.State, o.Only))
			}
			slices.Sort(got)
			if is := strings.Join(got, ", "); is != c.want {
				t.Errorf("listed: %q, want %q", is, c.want)
			}
		})
	}
}
