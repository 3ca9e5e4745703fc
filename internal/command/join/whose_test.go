package join

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/trust/handshake"
)

// TestAMemberIsPushedToUnderOneName: a kubeconfig that is taken for another one's withdraws no
// token, and turns no Cluster that works.
func TestAMemberIsPushedToUnderOneName(t *testing.T) {
	secret := func(name, label string, data map[string][]byte) corev1.Secret {
		s := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "atoll-system"}, Data: data}
		if label != "" {
			s.Labels = map[string]string{handshake.LabelPush: label}
		}
		return s
	}
	token := secret("atoll-agent-push-x", "oslo", nil)
	pulled := secret(secretName, "", map[string][]byte{"name": []byte("oslo")})
	identity := secret(identityName, "", nil)
	for name, c := range map[string]struct {
		member []corev1.Secret
		hub    []string // Clusters, all of them Ready
		joins  string
		force  bool
		fails  string
	}{
		"a new one":                              {joins: "oslo"},
		"once more":                              {member: []corev1.Secret{token, identity}, hub: []string{"oslo"}, joins: "oslo"},
		"under another name":                     {member: []corev1.Secret{token, identity}, hub: []string{"oslo"}, joins: "rome", fails: "is cluster oslo of this hub"},
		"under another's name":                   {member: []corev1.Secret{token, identity}, hub: []string{"oslo", "rome"}, joins: "rome", fails: "is cluster oslo of this hub"},
		"that is pulled, under another name":     {member: []corev1.Secret{pulled, identity}, hub: []string{"oslo"}, joins: "rome", fails: "is cluster oslo of this hub"},
		"that is pulled, under its own":          {member: []corev1.Secret{pulled, identity}, hub: []string{"oslo"}, joins: "oslo"},
		"that was removed, under another name":   {member: []corev1.Secret{token, identity}, joins: "rome"},
		"a new one under a name that works":      {hub: []string{"oslo"}, joins: "oslo", fails: "no agent ever worked on"},
		"a new one, in the place of one, forced": {hub: []string{"oslo"}, joins: "oslo", force: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := &joinOptions{name: c.joins, force: c.force, push: pushFlags{on: true}}
			member := startCluster(t, func(path string) any {
				list := corev1.SecretList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "SecretList"}}
				for _, s := range c.member {
					if strings.HasSuffix(path, "/secrets/"+s.Name) {
						return s
					}
					if s.Labels != nil {
						list.Items = append(list.Items, s)
					}
				}
				if strings.HasSuffix(path, "/secrets") {
					return list
				}
				return nil
			})
			hub := startCluster(t, func(path string) any {
				for _, name := range c.hub {
					if strings.HasSuffix(path, "/clusters/"+name) {
						return v1alpha1.Cluster{
							TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cluster"}, ObjectMeta: metav1.ObjectMeta{Name: name},
							Status: v1alpha1.ClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ClusterReady, Status: metav1.ConditionTrue}}},
						}
					}
				}
				return nil
			})
			err := o.checkMemberIdentity(t.Context(), member, hub)
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want one that says %q", err, c.fails)
			}
		})
	}
}

// startCluster is a cluster that has what get gives by its path.
func startCluster(t *testing.T, get func(path string) any) *client.Connection {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		found := get(r.URL.Path)
		if found == nil {
			w.WriteHeader(http.StatusNotFound)
			parts := strings.Split(r.URL.Path, "/")
			found = metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
				Details: &metav1.StatusDetails{Name: parts[len(parts)-1], Kind: parts[len(parts)-2]},
			}
		}
		_ = json.NewEncoder(w).Encode(found) // the client has gone
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &client.Connection{Config: config, Dynamic: dyn}
}
