package server

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/manifest"
	"atoll.dev/atoll/internal/preview"
	"atoll.dev/atoll/internal/state"
)

// Clusters with equal contents share one, and others have one of their own. Other items are left out.
func TestRenderedContentsOfAnObject(t *testing.T) {
	conf := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "conf"}
	other := atoll.ItemKey{Kind: "ConfigMap", Namespace: "shop", Name: "other"}
	content := &atoll.Content{
		Items: []atoll.Item{
			{Key: conf, APIVersion: "v1", Object: []byte(`{"metadata":{"name":"conf"},"data":{"a":"1"}}`), Treatment: &atoll.Treatment{IgnoreFields: []string{"/data/a"}}},
			{Key: other, APIVersion: "v1", Object: []byte(`{"data":{"b":"1"}}`)},
		},
		Rules: []atoll.Rule{{
			Policy: "OverridePolicy/shop/p", Items: []atoll.ItemKey{conf}, Semantics: atoll.CurrentRuleSemantics,
			Target:     &v1alpha1.ClusterTarget{ClusterAffinity: v1alpha1.ClusterAffinity{ClusterNames: []string{"oslo"}}},
			Overriders: v1alpha1.Overriders{LabelsOverrider: []v1alpha1.LabelAnnotationOverrider{{Operator: v1alpha1.OverrideAdd, Value: map[string]string{"x": "y"}}}},
		}},
	}
	b := renderedObject{key: conf, byContent: map[string]int{}}
	renderer := manifest.NewRenderer(content)
	for _, name := range []string{"lima", "oslo", "tokyo"} {
		row := state.Row{Cluster: name, Spec: atoll.RowSpec{Revision: "r1", Phase: atoll.RowActive}}
		b.addRow(renderer, row, &atoll.ClusterView{Name: name}, content)
	}
	index := func(cluster string) int {
		return slices.IndexFunc(b.out.Contents, func(c preview.RenderedContent) bool { return slices.Contains(c.Clusters, cluster) })
	}
	if len(b.out.Contents) != 2 || index("lima") != index("tokyo") || index("oslo") == index("lima") || b.clusters != 3 {
		t.Fatalf("%+v", b.out)
	}
	if c := b.out.Contents[index("oslo")]; !strings.Contains(string(c.Object), `"x":"y"`) || !slices.Equal(c.MemberOwned, []string{"/data/a"}) || c.APIVersion != "v1" {
		t.Errorf("%+v", c)
	}
}

// A rendering counts its memory for the user before anything is read, and releases it.
func TestRenderingsReserveMemory(t *testing.T) {
	reserved, released := int64(0), 0
	s := &Server{
		Sources: func() (Sources, bool) { return Sources{}, false },
		ReserveMemory: func(name, _ string, n int64) (func(), error) {
			if name != "ann" {
				t.Errorf("counted for %q", name)
			}
			reserved += n
			return func() { released++ }, nil
		},
	}
	r := httptest.NewRequest(http.MethodGet, atoll.RenderPath+"?kind=ConfigMap&name=a", nil)
	r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: "ann"}))
	w := httptest.NewRecorder()
	if s.ServeRender(w, r); w.Code != http.StatusServiceUnavailable || reserved != renderedMemory || released != 1 {
		t.Errorf("status %d, %d bytes reserved, %d times released", w.Code, reserved, released)
	}
	for _, bad := range []*http.Request{httptest.NewRequest(http.MethodPost, atoll.RenderPath, nil), httptest.NewRequest(http.MethodGet, atoll.RenderPath+"?colour=blue", nil)} {
		w := httptest.NewRecorder()
		if s.ServeRender(w, bad); w.Code < 400 || w.Code >= 500 {
			t.Errorf("%s %s: status %d", bad.Method, bad.URL, w.Code)
		}
	}
}
