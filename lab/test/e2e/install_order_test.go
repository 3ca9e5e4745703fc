package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"atoll.dev/atoll/internal/testwait"
)

// installationParts are the parts of an installation, each of which a person can apply at any time.
var installationParts = map[string]string{
	"namespace": "{apiVersion: v1, kind: Namespace, metadata: {name: $NS}}",
	"definition": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.$NS.example}
spec:
  group: $NS.example
  scope: Namespaced
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`,
	"webhook": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $NS}
webhooks:
- name: gadgets.$NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  rules: [{apiGroups: [$NS.example], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [gadgets]}]
  clientConfig: {url: "$URL/$NS", caBundle: $CA}
`,
	"resource": "{apiVersion: $NS.example/v1, kind: Gadget, metadata: {name: one, namespace: $NS}, spec: {size: 3}}",
}

// gadgetWebhook admits everything, and knows the paths at which it was asked.
type gadgetWebhook struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]int
}

func newGadgetWebhook(t *testing.T) *gadgetWebhook {
	t.Helper()
	w := &gadgetWebhook{asked: map[string]int{}}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(out, "it is no review", http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.asked[strings.TrimPrefix(r.URL.Path, "/")]++
		w.mu.Unlock()
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		out.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(out).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// countCalls returns how often the webhook was asked at a path.
func (w *gadgetWebhook) countCalls(path string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked[path]
}

// fillPart fills in a part for a namespace.
func (w *gadgetWebhook) fillPart(part, ns string) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw}))
	return strings.NewReplacer("$NS", ns, "$URL", w.URL, "$CA", ca).Replace(part)
}

// listPermutations returns all orders of names.
func listPermutations(names ...string) (out [][]string) {
	if len(names) == 0 {
		return [][]string{nil}
	}
	for i, first := range names {
		rest := append(append([]string{}, names[:i]...), names[i+1:]...)
		for _, order := range listPermutations(rest...) {
			out = append(out, append([]string{first}, order...))
		}
	}
	return out
}

// TestAnInstallationWorksInAnyOrder: a namespace, a definition, an object of its kind and a webhook that must admit the object are
// applied in every order on a hub that places everything. Kubernetes refuses the object before its namespace and its
// definition; the person applies it once more. The member gets all of it. `helm install --create-namespace` works
// with and without the namespace and the definition.
func TestAnInstallationWorksInAnyOrder(t *testing.T) {
	l := newOwnLab(t, 1, "--default-placement", "All")
	hub, member := l.KubeconfigPath("hub"), l.KubeconfigPath("member1")
	webhook := newGadgetWebhook(t)
	inMember := func(ns, name string) {
		t.Helper()
		testwait.UntilNil(t, "the member has the object in "+ns, func(context.Context) error {
			if out := kubectlAt(t, member, "", "get gadgets."+ns+".example "+name+" -n "+ns+" -o jsonpath={.spec.size}"); out != "3" {
				return errors.New(out)
			}
			return nil
		})
		testwait.UntilNil(t, "the member has the webhook of "+ns, func(context.Context) error {
			if out := kubectlAt(t, member, "", "get validatingwebhookconfiguration "+ns+" -o name"); !strings.HasSuffix(strings.TrimSpace(out), "/"+ns) {
				return errors.New(out)
			}
			return nil
		})
	}
	orders := listPermutations("namespace", "definition", "webhook", "resource")
	for i, order := range orders {
		ns, applied := fmt.Sprintf("order-%02d", i), map[string]bool{}
		apply := func(part string) {
			t.Helper()
			out := kubectlAt(t, hub, webhook.fillPart(installationParts[part], ns), "apply -f -")
			applied[part] = !strings.Contains(out, "exit status")
			switch early := !applied["namespace"] || !applied["definition"]; {
			case part == "resource" && early && applied[part], part != "resource" && !applied[part]:
				t.Errorf("%v: %s: %s", order, part, out)
			}
		}
		for _, part := range order {
			apply(part)
		}
		if !applied["resource"] {
			testwait.UntilNil(t, "kubectl finds the kind", func(context.Context) error {
				if out := kubectlAt(t, hub, webhook.fillPart(installationParts["resource"], ns), "apply -f -"); strings.Contains(out, "exit status") {
					return errors.New(out)
				}
				return nil
			})
		}
	}
	for i := range orders {
		inMember(fmt.Sprintf("order-%02d", i), "one")
	}

	helm := newHelm(t, hub)
	for ns, before := range map[string][]string{"helm-new": nil, "helm-namespace": {"namespace"}, "helm-definition": {"definition"}, "helm-both": {"namespace", "definition"}} {
		for _, part := range before {
			if out := kubectlAt(t, hub, webhook.fillPart(installationParts[part], ns), "apply -f -"); strings.Contains(out, "exit status") {
				t.Fatal(out)
			}
		}
		chart := webhook.writeChart(t, ns)
		expectOutput(t, "helm install", helm.run("install gadget "+chart+" -n "+ns+" --create-namespace --wait --timeout 120s"), "STATUS: deployed")
		inMember(ns, "one")
	}
	// The webhook of a member is asked about an object that comes after it.
	edit := func(context.Context) error {
		kubectlAt(t, hub, "", fmt.Sprintf("annotate gadgets.helm-new.example one -n helm-new edited=%d --overwrite", webhook.countCalls("helm-new")+1))
		if webhook.countCalls("helm-new") == 0 {
			return errors.New("the webhook was not asked")
		}
		return nil
	}
	testwait.UntilNil(t, "the member asks the webhook", edit)
}

// writeChart writes a chart with the parts of an installation. The definition is among the chart's own.
func (w *gadgetWebhook) writeChart(t *testing.T, ns string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), ns)
	for name, text := range map[string]string{
		"Chart.yaml":              "{apiVersion: v2, name: gadget, version: 1.0.0}",
		"crds/gadgets.yaml":       installationParts["definition"],
		"templates/webhook.yaml":  installationParts["webhook"],
		"templates/resource.yaml": installationParts["resource"],
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(w.fillPart(text, ns)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
