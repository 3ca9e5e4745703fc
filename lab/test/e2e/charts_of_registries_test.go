package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"atoll.dev/atoll/internal/sources/chartstest"
	"atoll.dev/atoll/internal/sources/cosigntest"
	"atoll.dev/atoll/internal/testwait"
)

// newShopChart returns the archive of a chart with a Deployment, and with a ConfigMap below version 2.
func newShopChart(t *testing.T, version string) []byte {
	t.Helper()
	return chartstest.NewArchive(t,
		"shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: "+version+"\n",
		"shop/values.yaml", "image: nginx:0\n",
		"shop/templates/web.yaml", webText("{{ .Values.image }}"),
		"shop/templates/old.yaml", `{{ if semverCompare "<2" .Chart.Version }}`+oldSettings+"{{ end }}\n")
}

// A chart of a registry with a password and TLS runs in members, with values of the Source. A later version in the range comes by
// itself, and removes what it drops. A range that nothing meets, a signature that is missing, and the end of the registry, remove nothing.
func TestSourceBringsChartsOfARegistryToMembers(t *testing.T) {
	ns := createNamespace(t, "charts")
	server, ca := chartstest.NewRegistry(t, nil)
	chartstest.PushChart(t, server, newShopChart(t, "1.0.0"), "shop", "1.0.0")
	dir := t.TempDir()
	caFile, values := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "values.yaml")
	for name, text := range map[string]string{caFile: ca, values: "image: nginx:1\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustKubectl(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: login, namespace: "+ns+"}\nstringData: {username: "+chartstest.Username+", password: "+chartstest.Password+"}\n", "create -f -")
	url := strings.Replace(server.URL, "https://", "oci://", 1) + "/charts"
	runCLI(t, "source", "create", "helm", url, "--name", "shop", "-n", ns, "--chart", "shop", "--version", "<3", "--values", values, "--secret", "login", "--ca-file", caFile,
		"--interval", "30s", "--clusters", "region in (eu,us)", "--yes")
	testwait.UntilNil(t, "the chart runs in the chosen members", allChecks(
		existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old", "member1", "member2")))
	shows := func(what string, want ...string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			out := mustKubectl(t, "", "get sources,repositories -n "+ns) + runCLI(t, "source", "get", "shop", "-n", ns) + runCLI(t, "source", "list", "-n", ns)
			for _, text := range want {
				if !strings.Contains(out, text) {
					return fmt.Errorf("no %q in:\n%s", text, out)
				}
			}
			if strings.Contains(out, chartstest.Password) {
				t.Errorf("a password is shown:\n%s", out)
			}
			return nil
		})
	}
	shows("the version is shown", "1.0.0@", "version   shop:1.0.0@sha256:", "build     Helm of . shop-1.0.0", url, "2/2")
	chartstest.PushChart(t, server, newShopChart(t, "2.0.0"), "shop", "2.0.0")
	runCLI(t, "source", "sync", "shop", "-n", ns)
	testwait.UntilNil(t, "the later version removes what it drops", allChecks(
		existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2"), existsIn("v1", "ConfigMap", ns, "old")))
	shows("the later version is shown", "2.0.0@")
	mustKubectl(t, "", "patch source shop -n "+ns+` --type=merge -p {"spec":{"ref":{"version":">=9"}}}`)
	shows("a range that nothing meets is stated", "VersionMissing")
	mustKubectl(t, "", "patch source shop -n "+ns+` --type=merge -p {"spec":{"ref":{"version":"2.0.0"}}}`)
	shows("the stated version is back", "2.0.0@", "Rendered: True")
	key := cosigntest.NewKey(t)
	mustKubectl(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "signers", "namespace": %q, "annotations": {"atoll.dev/clusters": ""}}, "stringData": {"cosign.pub": %q}}`, ns, key.Public), "create -f -")
	mustKubectl(t, "", "patch repository shop -n "+ns+` --type=merge -p {"spec":{"verify":{"mode":"Artifact","secretRef":{"name":"signers"}}}}`)
	shows("a chart without a signature is refused", "SignatureMissing")
	if err := existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2")(t.Context()); err != nil {
		t.Errorf("what runs does not stay: %v", err)
	}
	charts := cosigntest.OpenRepository(t, server, "charts/shop", chartstest.Username, chartstest.Password)
	digest := charts.ResolveTag(t, "2.0.0")
	charts.PushSignatures(t, digest, key.SignPayload(t, cosigntest.NewPayload(digest)))
	runCLI(t, "source", "sync", "shop", "-n", ns)
	shows("the signed chart is applied", "signed by ECDSA sha256:", "Rendered: True")
	server.Close()
	runCLI(t, "source", "sync", "shop", "-n", ns)
	shows("the registry is away", "RepositoryUnreachable")
	if err := existsIn("apps/v1", "Deployment", ns, "web", "member1", "member2")(t.Context()); err != nil {
		t.Errorf("what runs does not stay: %v", err)
	}
}
