package apiserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/testwait"
)

// charts is what an ingress controller, a certificate manager, a metrics server
// and a careful platform team ask a cluster to do, none of which exists here.
const charts = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: ingress-nginx-admission}
webhooks:
- name: validate.nginx.ingress.kubernetes.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: ingress-nginx-controller-admission, namespace: ingress-nginx, path: /networking/v1/ingresses}}
  rules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: cert-manager-webhook}
webhooks:
- name: webhook.cert-manager.io
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {name: cert-manager-webhook, namespace: cert-manager, path: /mutate}}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: deny-all}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  validations: [{expression: "false", message: nothing may be written}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: deny-all}
spec: {policyName: deny-all, validationActions: [Deny]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: metrics-server, namespace: kube-system}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: starve}
spec: {type: Limited, limited: {nominalConcurrencyShares: 0, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: starve}
spec:
  matchingPrecedence: 2
  priorityLevelConfiguration: {name: starve}
  rules:
  - subjects: [{kind: Group, group: {name: "system:authenticated"}}]
    resourceRules: [{apiGroups: ["*"], clusterScope: true, namespaces: ["*"], resources: ["*"], verbs: ["*"]}]
    nonResourceRules: [{nonResourceURLs: ["*"], verbs: ["*"]}]
`

const inNamespace = `
apiVersion: v1
kind: ResourceQuota
metadata: {name: hard, namespace: %[1]s}
spec: {hard: {pods: "0", persistentvolumeclaims: "0", count/configmaps: "0"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: limits, namespace: %[1]s}
spec: {limits: [{type: Container, default: {cpu: 500m}, max: {cpu: "1"}}, {type: PersistentVolumeClaim, max: {storage: 1Mi}}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: %[1]s}
spec: {ingressClassName: nginx, defaultBackend: {service: {name: web, port: {number: 80}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: %[1]s}
spec: {storageClassName: no-such-class, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: %[1]s}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "8"}}}]}
`

func TestTemplatesDoNotAct(t *testing.T) {
	t.Parallel()
	u := newAdmin(t, hub)
	ns := u.createNamespace("charts")
	u.mustApply(charts)
	t.Cleanup(func() { deleteCharts(u) })
	// Were they to act, informers would know within moments; every write below
	// is one of the things that they forbid.
	for i := range 20 {
		if err := u.createConfigMap(ns, fmt.Sprint("writable-", i)); err != nil {
			t.Fatalf("the hub takes no more writes: %v", err)
		}
	}
	u.mustApply(fmt.Sprintf(inNamespace, ns))
	pod, err := u.kube.CoreV1().Pods(ns).Get(t.Context(), "pod", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if pod.Spec.Containers[0].Resources.Limits != nil {
		t.Error("the LimitRange acted on the hub")
	}
	if _, _, err := u.kube.Discovery().ServerGroupsAndResources(); err != nil {
		t.Errorf("discovery is not whole: %v", err)
	}
	quota, err := u.kube.CoreV1().ResourceQuotas(ns).Get(t.Context(), "hard", metav1.GetOptions{})
	if err != nil || quota.Labels["atoll.dev/inert"] != "true" {
		t.Errorf("people do not see the quota, or it is not labelled: %v %v", quota, err)
	}
	if err := u.kube.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), "data", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.kube.CoreV1().PersistentVolumeClaims(ns).Get(t.Context(), "data", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the claim does not go: %v", err)
	}
	if err := u.kube.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the namespace is gone", func(ctx context.Context) (bool, string) {
		got, err := u.kube.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(got.Status, err)
	})
	if list, err := u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 1 {
		t.Errorf("people do not see the webhook: %v %v", list, err)
	}
}

func deleteCharts(u *user) {
	ctx := context.Background()
	u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, "ingress-nginx-admission", metav1.DeleteOptions{})
	u.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, "cert-manager-webhook", metav1.DeleteOptions{})
	u.kube.AdmissionregistrationV1().ValidatingAdmissionPolicies().Delete(ctx, "deny-all", metav1.DeleteOptions{})
	u.kube.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "deny-all", metav1.DeleteOptions{})
	u.resourceClient("apiregistration.k8s.io", "v1", "apiservices").Delete(ctx, "v1beta1.metrics.k8s.io", metav1.DeleteOptions{})
	u.kube.FlowcontrolV1().FlowSchemas().Delete(ctx, "starve", metav1.DeleteOptions{})
	u.kube.FlowcontrolV1().PriorityLevelConfigurations().Delete(ctx, "starve", metav1.DeleteOptions{})
}

// hubWebhook has no one to answer it, so writes in its namespace fail exactly
// while it acts.
const hubWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hub-webhook, labels: {atoll.dev/hub: "%[2]s"}}
webhooks:
- name: hub.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
  clientConfig: {url: "https://127.0.0.1:1/validate"}
  namespaceSelector: {matchLabels: {test: %[1]s}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
`

func TestLabelledForTheHub(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("acting")
	t.Cleanup(func() {
		u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(context.Background(), "hub-webhook", metav1.DeleteOptions{})
	})
	for i, acts := range []bool{true, false, true} {
		u.mustApply(fmt.Sprintf(hubWebhook, ns, fmt.Sprint(acts)))
		testwait.Until(t, fmt.Sprintf("the webhook acts: %v", acts), func(context.Context) (bool, string) {
			err := u.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "probe", metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return false, err.Error()
			}
			err = u.createConfigMap(ns, "probe")
			return (err != nil && strings.Contains(err.Error(), "hub.example.com")) == acts, fmt.Sprint(err)
		})
		got, err := u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hub-webhook", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, inert := got.Labels["atoll.dev/inert"]; inert == acts {
			t.Errorf("step %d: labels %v", i, got.Labels)
		}
	}
}

func TestQuotaThatActs(t *testing.T) {
	u := newAdmin(t, hub)
	quota := func(ns string) {
		t.Helper()
		u.mustApply(fmt.Sprintf(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: %s, labels: {atoll.dev/hub: "true"}}
spec: {hard: {count/secrets: "2"}}
`, ns))
		testwait.Until(t, "the quota is counted", func(ctx context.Context) (bool, string) {
			q, err := u.kube.CoreV1().ResourceQuotas(ns).Get(ctx, "few", metav1.GetOptions{})
			return err == nil && len(q.Status.Used) == 1, fmt.Sprint(q, err)
		})
	}
	// Upstream's counter may count again by a cache that lags behind what admission has let in since,
	// so that a third Secret can get in.
	ns := u.createNamespace("counted")
	quota(ns)
	secrets := u.kube.CoreV1().Secrets(ns)
	made := 0
	testwait.Until(t, "two Secrets, and a refusal", func(ctx context.Context) (bool, string) {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s-", made)}}, metav1.CreateOptions{})
		if err == nil {
			made++
		}
		return made >= 2 && err != nil && strings.Contains(err.Error(), "exceeded quota"), fmt.Sprint(made, err)
	})
	for i := range made {
		if err := secrets.Delete(t.Context(), fmt.Sprint("s-", i), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testwait.Until(t, "room for another", func(ctx context.Context) (bool, string) {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "again"}}, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func TestInertLabelStays(t *testing.T) {
	u := newAdmin(t, hub)
	ns := u.createNamespace("stays")
	u.mustApply(fmt.Sprintf(inNamespace, ns))
	ranges := u.kube.CoreV1().LimitRanges(ns)
	_, err := ranges.Patch(t.Context(), "limits", types.MergePatchType, []byte(`{"metadata":{"labels":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ranges.Get(t.Context(), "limits", metav1.GetOptions{})
	if err != nil || got.Labels["atoll.dev/inert"] != "true" {
		t.Errorf("taking the label off made the object act: %v %v", got.Labels, err)
	}
	schemas := u.kube.FlowcontrolV1().FlowSchemas()
	if _, err := schemas.Patch(t.Context(), "catch-all", types.MergePatchType, []byte(`{"metadata":{"labels":{"edited":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	own, err := schemas.Get(t.Context(), "catch-all", metav1.GetOptions{})
	if err != nil || own.Labels["edited"] != "yes" || len(own.Labels) != 1 {
		t.Errorf("what the hub made for itself became inert: %v %v", own.Labels, err)
	}
}
