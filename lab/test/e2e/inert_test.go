package e2e

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/testwait"
)

// addonObjects is what charts of ingress controllers, certificate managers and metrics
// servers bring along. In members nothing answers its webhooks; they concern only what
// the test does not place.
const addonObjects = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $NS-ingress, labels: {chart: $NS}}
webhooks:
- name: validate.$NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  matchPolicy: Equivalent
  rules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}]
  clientConfig: {service: {name: hook, namespace: $NS, path: /check}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: $NS-requests, labels: {chart: $NS}, annotations: {injector.example/inject-ca-from: $NS/hook}}
webhooks:
- name: mutate.$NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 30
  reinvocationPolicy: IfNeeded
  rules: [{apiGroups: [$NS.example], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [requests]}]
  clientConfig: {service: {name: hook, namespace: $NS, path: /mutate}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.custom.metrics.k8s.io, labels: {chart: $NS}}
spec: {group: custom.metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {name: hook, namespace: $NS}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: requests.$NS.example, labels: {chart: $NS}, annotations: {injector.example/inject-ca-from: $NS/hook}}
spec:
  group: $NS.example
  scope: Namespaced
  names: {plural: requests, singular: request, kind: Request, listKind: RequestList}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {name: hook, namespace: $NS, path: /convert}}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {host: {type: string}}}}}}}
  - {name: v1alpha1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {host: {type: string}}}}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $NS-none, labels: {chart: $NS}}
spec:
  failurePolicy: Fail
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [secrets]}]}
  validations: [{expression: "false", message: no Secrets here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $NS-none, labels: {chart: $NS}}
spec: {policyName: $NS-none, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: $NS-level, labels: {chart: $NS}}
spec: {type: Limited, limited: {nominalConcurrencyShares: 5, limitResponse: {type: Reject}}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: $NS-flow, labels: {chart: $NS}}
spec: {priorityLevelConfiguration: {name: $NS-level}, matchingPrecedence: 9000, rules: [{subjects: [{kind: ServiceAccount, serviceAccount: {name: hook, namespace: $NS}}], resourceRules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"], namespaces: ["*"]}]}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: $NS-high, labels: {chart: $NS}}
value: 1000
---
apiVersion: networking.k8s.io/v1
kind: IngressClass
metadata: {name: $NS-class, labels: {chart: $NS}, annotations: {ingressclass.kubernetes.io/is-default-class: "true"}}
spec: {controller: $NS.example/ingress}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: $NS-fast, labels: {chart: $NS}}
provisioner: $NS.example/disk
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: $NS-hook, labels: {chart: $NS}}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $NS-hook, labels: {chart: $NS}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: $NS-hook}
subjects: [{kind: ServiceAccount, name: hook, namespace: $NS}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: hook, namespace: $NS}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: hook, namespace: $NS}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hook, namespace: $NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: hook}
subjects: [{kind: ServiceAccount, name: hook, namespace: $NS}]
---
apiVersion: v1
kind: Service
metadata: {name: hook, namespace: $NS}
spec: {selector: {app: hook}, ports: [{port: 443, targetPort: 8443}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: small, namespace: $NS}
spec: {hard: {configmaps: "2", requests.cpu: "1"}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: $NS}
spec: {limits: [{type: Container, default: {cpu: 100m}, max: {cpu: 200m}}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: $NS}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hook, namespace: $NS}
spec:
  selector: {matchLabels: {app: hook}}
  template:
    metadata: {labels: {app: hook}}
    spec:
      serviceAccountName: hook
      priorityClassName: $NS-high
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
      containers: [{name: hook, image: "registry.example/hook:1", resources: {requests: {cpu: 100m}}, volumeMounts: [{name: data, mountPath: /data}]}]
`

// addonPolicies place all of addon in two clusters.
func addonPolicies(t *testing.T, ns string) string {
	t.Helper()
	const head = "apiVersion: atoll.dev/v1alpha1\nkind: %sPropagationPolicy\nmetadata: {name: $NS%s}\nspec:\n  placement: {clusterAffinity: {clusterNames: [member1, member2]}}\n  resourceSelectors:\n"
	cluster, inside := fmt.Sprintf(head, "Cluster", ""), fmt.Sprintf(head, "", ", namespace: $NS")
	for _, o := range decodeObjects(t, ns, addonObjects) {
		line := fmt.Sprintf("  - {apiVersion: %s, kind: %s, name: %s}\n", o.GetAPIVersion(), o.GetKind(), o.GetName())
		if o.GetNamespace() == "" {
			cluster += line
		} else {
			inside += line
		}
	}
	return strings.ReplaceAll(cluster+"---\n"+inside, "$NS", ns)
}

// statedDifference returns an error with the first place at which live differs from stated.
func statedDifference(stated, live any, path string) error {
	switch s := stated.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for k, v := range s {
			if err := statedDifference(v, l[k], path+"."+k); err != nil {
				return err
			}
		}
		return nil
	case []any:
		l, _ := live.([]any)
		if len(s) != len(l) {
			return fmt.Errorf("%s: %v, want %v", path, live, stated)
		}
		for i := range s {
			if err := statedDifference(s[i], l[i], fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(fmt.Sprint(stated), fmt.Sprint(live)) {
		return fmt.Errorf("%s: %v, want %v", path, live, stated)
	}
	return nil
}

// deliveredAsStated returns a check that the cluster has each object as it is stated, or none
// of them.
func deliveredAsStated(cluster string, list []*unstructured.Unstructured, want bool) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, o := range list {
			if err := inCluster(cluster, o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName(), want)(ctx); err != nil {
				return err
			}
			if !want {
				continue
			}
			live, err := get(ctx, cluster, o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
			if err != nil || live == nil {
				return fmt.Errorf("%s: %s %s: %v", cluster, o.GetKind(), o.GetName(), err)
			}
			if err := statedDifference(o.Object, live.Object, ""); err != nil {
				return fmt.Errorf("%s: %s %s%w", cluster, o.GetKind(), o.GetName(), err)
			}
			if live.GetLabels()["atoll.dev/inert"] != "" {
				return fmt.Errorf("%s: %s %s is labelled inert", cluster, o.GetKind(), o.GetName())
			}
		}
		return nil
	}
}

// A dead metrics API in a member keeps namespaces there from going, so that this test
// has the lab for itself.
func TestTemplatesDoNotActOnTheHub(t *testing.T) {
	ns := createNamespace(t, "addon")
	file := writeManifest(t, "addon.yaml", ns, addonObjects)
	stated := decodeObjects(t, ns, addonObjects)
	mustKubectl(t, "", "apply -f "+file)
	// Dead webhooks and a dead API do not keep a namespace of the hub from going.
	mustKubectl(t, "", "delete ns "+ns+" --timeout=90s")
	createNamespace(t, ns)
	mustKubectl(t, "", "apply -f "+file)
	mustKubectl(t, addonPolicies(t, ns), "apply -f -")
	kubectlAtEnd(t, "hub", "delete cppol "+ns+" --ignore-not-found")

	mustKubectl(t, "", "create ingress -n "+ns+" web --rule=shop.example/*=hook:443")
	for i := range 4 {
		mustKubectl(t, "", fmt.Sprintf("create configmap -n %s many-%d", ns, i))
	}
	mustKubectl(t, "", "create secret generic -n "+ns+" allowed --from-literal=a=b")
	mustKubectl(t, "", "run -n "+ns+` big --image=registry.example/big:1 --overrides={"spec":{"containers":[{"name":"big","image":"registry.example/big:1","resources":{"requests":{"cpu":"4"}}}]}}`)
	if o, err := get(t.Context(), "hub", "v1", "Pod", ns, "big"); err != nil || o == nil || strings.Contains(fmt.Sprint(o.Object["spec"]), "limits") {
		t.Errorf("the LimitRange acted on a Pod of the hub: %v (%v)", o, err)
	}
	mustKubectl(t, strings.ReplaceAll("apiVersion: $NS.example/v1alpha1\nkind: Request\nmetadata: {name: r, namespace: $NS}\nspec: {host: a}", "$NS", ns), "apply -f -")
	if out := mustKubectl(t, "", "get requests.v1."+ns+".example -n "+ns+" r -o jsonpath={.spec.host}"); out != "a" {
		t.Errorf("the other version of a custom resource reads %q", out)
	}
	if out := mustKubectl(t, "", "api-resources -o name"); strings.Contains(out, "custom.metrics.k8s.io") {
		t.Error("a template's APIService is in the hub's discovery")
	}
	for _, m := range memberNames[:2] {
		testwait.UntilNil(t, "delivery as stated", deliveredAsStated(m, stated, true))
	}
	testwait.UntilNil(t, "the claim is bound, and the hub says so", fieldShows([]string{"hub", "member1", "member2"}, objectName{"v1", "PersistentVolumeClaim", ns, "data"}, "status.phase", "Bound"))
	if err := deliveredAsStated("member3", stated, false)(t.Context()); err != nil {
		t.Error(err)
	}

	mustKubectl(t, "", "delete -n "+ns+" deploy hook --timeout=60s")
	mustKubectl(t, "", "delete -n "+ns+" pvc data --timeout=60s")
	// In the members the API is dead in earnest, and has to go before the namespace
	// can.
	mustKubectl(t, "", "delete ns "+ns+" --wait=false")
	mustKubectl(t, "", "delete --ignore-not-found --timeout=90s -f "+file)
	mustKubectl(t, "", "wait --for=delete ns/"+ns+" --timeout=90s")
	for _, c := range []string{"hub", "member1", "member2"} {
		testwait.UntilNilWithin(t, 2*testwait.HangLimit, "all is gone", allChecks(deliveredAsStated(c, stated, false), inCluster(c, "v1", "Namespace", "", ns, false)))
	}
}

// An object with the label acts on the hub, and stops without it.
func TestLabelledObjectsActOnTheHub(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "acting")
	apply(t, ns, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: $NS, labels: {atoll.dev/hub: "true"}}
webhooks:
- name: dead.$NS.example
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  clientConfig: {url: "https://127.0.0.1:1/"}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: $NS, namespace: $NS, labels: {atoll.dev/hub: "true"}}
spec: {hard: {count/secrets: "1"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: $NS, labels: {atoll.dev/hub: "true"}}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas < 3", message: too many}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: $NS, labels: {atoll.dev/hub: "true"}}
spec: {policyName: $NS, validationActions: [Deny], matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $NS}}}}
`)
	for _, kind := range []string{"validatingwebhookconfiguration", "validatingadmissionpolicy", "validatingadmissionpolicybinding"} {
		kubectlAtEnd(t, "hub", "delete "+kind+" "+ns)
	}
	// tried retries the command until its answer holds the text.
	tried := func(what, says, args string) {
		t.Helper()
		testwait.UntilNil(t, what, func(context.Context) error {
			if out := kubectlOutput(t, "", strings.Fields(args)...); !strings.Contains(out, says) {
				return errors.New("the output is: " + out)
			}
			return nil
		})
	}
	tried("the webhook acts", "failed calling webhook", "create cm -n "+ns+" c --dry-run=server")
	tried("the policy acts", "too many", "create deployment -n "+ns+" d --image=x --replicas=3 --dry-run=server")
	mustKubectl(t, "", "create deployment -n "+ns+" d --image=x --replicas=2")
	tried("the quota counts", "1", "get quota -n "+ns+" "+ns+" -o jsonpath={.status.hard}")
	mustKubectl(t, "", "create secret generic -n "+ns+" one")
	tried("the quota acts", "exceeded quota", "create secret generic -n "+ns+" two")

	mustKubectl(t, "", "label validatingwebhookconfiguration "+ns+" atoll.dev/hub-")
	mustKubectl(t, "", "label validatingadmissionpolicybinding "+ns+" atoll.dev/hub=false --overwrite")
	mustKubectl(t, "", "label quota -n "+ns+" "+ns+" atoll.dev/hub-")
	tried("the webhook stops", "created", "create cm -n "+ns+" c")
	tried("the policy stops", "created", "create deployment -n "+ns+" e --image=x --replicas=3")
	tried("the quota stops", "created", "create secret generic -n "+ns+" two")
}
