package e2e

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/testwait"
)

// A hub serves profiles in both versions of the SIG, with the same content. Fields that v1alpha2 does not have outlive a
// write by v1alpha2, and v1alpha2 holds its own rules.
func TestProfilesInBothVersions(t *testing.T) {
	t.Parallel()
	const group, first, next = "multicluster.x-k8s.io/", "v1alpha1", "v1alpha2"
	testwait.UntilNil(t, "the profile of a member is published in both versions", func(ctx context.Context) error {
		a, err := get(ctx, "hub", group+first, "ClusterProfile", "atoll-inventory", "member1")
		if err != nil || a == nil {
			return errors.Join(err, errors.New("no profile"))
		}
		b, err := get(ctx, "hub", group+next, "ClusterProfile", "atoll-inventory", "member1")
		if err != nil || b == nil {
			return errors.Join(err, errors.New("no profile in v1alpha2"))
		}
		if a.GetResourceVersion() == b.GetResourceVersion() && reflect.DeepEqual(a.Object["status"], b.Object["status"]) && reflect.DeepEqual(a.Object["spec"], b.Object["spec"]) {
			return nil
		}
		return errors.New("the versions differ")
	})

	ns := createNamespace(t, "inventories")
	mustKubectl(t, `{"apiVersion":"multicluster.x-k8s.io/v1alpha1","kind":"ClusterProfile","metadata":{"name":"other","namespace":"`+ns+`"},"spec":{"clusterManager":{"name":"other"}}}`, "create -f -")
	resource := func(version string) string { return "clusterprofiles." + version + ".multicluster.x-k8s.io" }
	patch := func(version, status string) string {
		return "patch " + resource(version) + " other -n " + ns + " --subresource=status --type=merge -p " + `{"status":` + status + `}`
	}
	const provider = `[{"name":"token","cluster":{"server":"https://10.0.0.1:6443","certificate-authority":"/etc/ca.crt"}}]`
	mustKubectl(t, "", patch(first, `{"credentialProviders":`+provider+`,"accessProviders":`+provider+`}`))
	mustKubectl(t, "", patch(next, `{"version":{"kubernetes":"v1.36.0"}}`))
	out := mustKubectl(t, "", "get "+resource(first)+" other -n "+ns+" -o jsonpath={.status}")
	for _, want := range []string{`"credentialProviders":[{"cluster":{"certificate-authority":"/etc/ca.crt"`, `"accessProviders":[{"cluster":{"certificate-authority":"/etc/ca.crt"`, `"kubernetes":"v1.36.0"`} {
		if !strings.Contains(out, want) {
			t.Errorf("after a write by v1alpha2 it lacks %s: %s", want, out)
		}
	}
	kubectlFails(t, "", patch(next, `{"accessProviders":[{"name":"bad","cluster":{"server":"nowhere"}}]}`), "server must be an absolute URL with a host")
}
