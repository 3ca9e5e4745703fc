package builders

import (
	"strings"
	"testing"

	"atoll.dev/atoll/internal/atoll"
)

// A name that differs each time is refused: no object of the hub could stand for it.
func TestANameThatDiffersIsRefused(t *testing.T) {
	got := RenderJob(chartJob("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a{{ randNumeric 9 }}}\n"))
	if got.Failure == nil || got.Failure.Reason != atoll.ReasonNotReproducible || !strings.Contains(got.Failure.Message, "templates/a.yaml:1: ConfigMap a") || len(got.Objects) > 0 {
		t.Errorf("%+v", got)
	}
}

// A certificate with its CA is noted in each object that has a part of it.
func TestCertificatesAreNoted(t *testing.T) {
	got := RenderJob(chartJob(`{{ $ca := genCAWithKey "ca" 365 (genPrivateKey "ecdsa") }}
apiVersion: v1
kind: Secret
metadata: {name: tls}
data: {tls.crt: {{ $ca.Cert | b64enc }}, tls.key: {{ $ca.Key | b64enc }}, fixed: YQ==}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks: [{name: a.example.com, clientConfig: {caBundle: {{ $ca.Cert | b64enc }}}}]
`))
	if len(got.Objects) != 2 {
		t.Fatal(describe(got))
	}
	paths := strings.Join(got.Objects[0].Generated, " ") + "; " + strings.Join(got.Objects[1].Generated, " ")
	if want := "/data/tls.crt /data/tls.key; /webhooks/name=a.example.com/clientConfig/caBundle"; paths != want {
		t.Errorf("%s, want %s", paths, want)
	}
}
