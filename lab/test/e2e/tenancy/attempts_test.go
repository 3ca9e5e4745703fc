package tenancy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/internal/trust"
	"atoll.dev/atoll/internal/trust/handshake"
)

// The neighbours: acme is a tenant with its set, for mallory; rival has another, with a
// Secret and a policy. noah may write policies in acme and read ConfigMaps only; ella has
// all rights on Atoll's kinds, and is not the hub.
const neighbourObjects = `
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {name: acme-set}}
---
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSet, metadata: {name: rival-set}}
---
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: acme-1, labels: {atoll.dev/set: acme-set, owner: acme}}, spec: {accepted: true, region: here}}
---
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: rival-1, labels: {atoll.dev/set: rival-set, owner: rival-corp}}, spec: {accepted: true, region: there}}
---
{apiVersion: atoll.dev/v1alpha1, kind: Cluster, metadata: {name: rival-2, labels: {atoll.dev/set: rival-set, owner: rival-corp}}, spec: {accepted: false}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: rival}}
---
{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding, metadata: {name: rival-set, namespace: rival}, spec: {clusterSet: rival-set}}
---
{apiVersion: v1, kind: Secret, metadata: {name: plans, namespace: rival}, stringData: {word: xyzzy}}
---
{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: rivals, namespace: rival}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-noah}
rules:
- {apiGroups: [atoll.dev], resources: [propagationpolicies, overridepolicies], verbs: ["*"]}
- {apiGroups: ["", apps], resources: [configmaps, deployments], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-ella}
rules:
- {apiGroups: [atoll.dev, engine.atoll.dev], resources: ["*"], verbs: ["*"]}
- {apiGroups: [scheduling.k8s.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-priorities}
rules:
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], verbs: ["*"]}
- {apiGroups: [""], resources: [namespaces], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-ella}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-ella}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ella}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-priorities}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-priorities}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: noah}]
`

const noahBinding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: noah, namespace: acme}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-noah}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: noah}]
---
{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: takes-over, namespace: acme}, spec: {conflictResolution: Overwrite, resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: nosuch}]}}
---
{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: all-secrets, namespace: acme}, spec: {resourceSelectors: [{apiVersion: v1, kind: Secret, name: nosuch}]}}
`

// acmePolicy is a PropagationPolicy of acme with this spec.
func acmePolicy(spec string) string {
	return "{apiVersion: atoll.dev/v1alpha1, kind: PropagationPolicy, metadata: {name: try, namespace: acme}, spec: {" + spec + "}}"
}

// acmePlacement chooses the ConfigMaps of acme and places them so.
func acmePlacement(placement string) string {
	return acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placement: {" + placement + "}")
}

// acmeOverride is an OverridePolicy of acme on this kind with these overriders.
func acmeOverride(apiVersion, kind, overriders string) string {
	return fmt.Sprintf("{apiVersion: atoll.dev/v1alpha1, kind: OverridePolicy, metadata: {name: try, namespace: acme}, spec: {resourceSelectors: [{apiVersion: %s, kind: %s}], overrideRules: [{overriders: {%s}}]}}", apiVersion, kind, overriders)
}

func configMapOverride(overriders string) string {
	return acmeOverride("apps/v1", "Deployment", overriders)
}

// targetedOverride is an OverridePolicy of acme for the clusters that the target selects.
func targetedOverride(target string) string {
	return strings.Replace(configMapOverride("replicas: 1"), "{overriders", "{targetCluster: {"+target+"}, overriders", 1)
}

// attemptField is the path of an attempted field in the schema, with all fields below it.
type attemptField struct {
	field string
	userAttempt
}

// interpreterFor returns an interpreter for the target's kinds.
func interpreterFor(target string) string {
	return "{apiVersion: atoll.dev/v1alpha1, kind: ResourceInterpreter, metadata: {name: try}, spec: {target: " + target + ", health: {cel: \"{'status': 'Degraded', 'message': string(object)}\"}}}"
}

// customizationFor returns one of Karmada's customizations for the target.
func customizationFor(target string) string {
	return "{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization, metadata: {name: try}, spec: {target: " + target + ", customizations: {healthInterpretation: {luaScript: \"return {status = 'Degraded'}\"}}}}"
}

// outOfNamespace tries to leave one's namespace, through the fields of policies.
var outOfNamespace = []attemptField{
	{"PropagationPolicy.spec.resourceSelectors[].namespace", userAttempt{"objects of another namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: rival}]"), `a policy in namespace "acme" selects only there`}},
	{"PropagationPolicy.spec.resourceSelectors[].kind", userAttempt{"what is in no namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}]"), "only a cluster policy selects it"}},
	{"", userAttempt{"namespaces themselves", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: Namespace, name: rival}]"), "only a cluster policy selects it"}},
	{"", userAttempt{"every kind at once", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: '*', kind: '*'}]"), "a user that places objects must be able to read them"}},
	{"", userAttempt{"Atoll's own kinds", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: atoll.dev/v1alpha1, kind: ClusterSetBinding}]"), "cannot be placed"}},
	{"", userAttempt{"the engine's kinds", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: engine.atoll.dev/v1alpha1, kind: Revision}]"), "cannot be placed"}},
	{"PropagationPolicy.spec.resourceSelectors[].name", userAttempt{"a path for a name", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: '../../rival/configmaps/x'}]"), "spec.resourceSelectors[0].name"}},
	{"", userAttempt{"a policy in another namespace", "mallory", "create", strings.Replace(acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]"), "namespace: acme", "namespace: rival", 1), "forbidden"}},
	{"ClusterPropagationPolicy", userAttempt{"a cluster policy", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: try}, spec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}}", "forbidden"}},
	{"ClusterOverridePolicy", userAttempt{"a cluster override", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterOverridePolicy, metadata: {name: try}, spec: {overrideRules: [{overriders: {replicas: 0}}]}}", "forbidden"}},
	{"OverridePolicy.spec.resourceSelectors[].namespace", userAttempt{"an override of another namespace", "mallory", "create", strings.Replace(configMapOverride("replicas: 0"), "kind: Deployment}", "kind: Deployment, namespace: rival}", 1), "selects only there"}},
	{"OverridePolicy.spec.resourceSelectors[].kind", userAttempt{"an override of RBAC", "mallory", "create", acmeOverride("rbac.authorization.k8s.io/v1", "Role", "mergePatch: {rules: []}"), "only a ClusterOverridePolicy"}},
	{"OverridePolicy.spec.overrideRules[].overriders.plaintext", userAttempt{"the namespace by patch", "mallory", "create", configMapOverride("plaintext: [{path: /metadata/namespace, operator: replace, value: rival}]"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.mergePatch", userAttempt{"the namespace by merge", "mallory", "create", configMapOverride("mergePatch: {metadata: {namespace: rival}}"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.strategicMerge", userAttempt{"the namespace by strategic merge", "mallory", "create", configMapOverride("strategicMerge: {metadata: {namespace: rival}}"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.ordered", userAttempt{"the namespace in order", "mallory", "create", configMapOverride("ordered: [{replicas: 1}, {plaintext: {path: /metadata/namespace, operator: replace, value: rival}}]"), "never touch"}},
	{"", userAttempt{"owners in order by merge", "mallory", "create", configMapOverride("ordered: [{mergePatch: {metadata: {ownerReferences: []}}}]"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.fieldOverrider", userAttempt{"the name as a document", "mallory", "create", configMapOverride("fieldOverrider: [{fieldPath: /metadata/name, json: [{subPath: /a, operator: add, value: b}]}]"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.imageOverrider", userAttempt{"the name as an image", "mallory", "create", configMapOverride("imageOverrider: [{predicate: {path: /metadata/name}, component: Tag, operator: remove}]"), "never touch"}},
	{"OverridePolicy.spec.overrideRules[].overriders.labelsOverrider", userAttempt{"whose an object is, by label", "mallory", "create", configMapOverride("labelsOverrider: [{operator: add, value: {atoll.dev/bundle-uid: theirs}}]"), "Atoll's own"}},
	{"OverridePolicy.spec.overrideRules[].overriders.annotationsOverrider", userAttempt{"what Atoll remembers, by annotation", "mallory", "create", configMapOverride("annotationsOverrider: [{operator: add, value: {atoll.dev/left-behind: theirs}}]"), "Atoll's own"}},
	{"", userAttempt{"whose an object is, by a label from the cluster", "mallory", "create", configMapOverride("labelsOverrider: [{operator: add, valueFrom: {atoll.dev/bundle-uid: {cel: cluster.name}}}]"), "Atoll's own"}},
	{"", userAttempt{"the namespace from the cluster", "mallory", "create", configMapOverride("plaintext: [{path: /metadata/namespace, operator: replace, valueFrom: {cel: cluster.name}}]"), "never touch"}},
	{"", userAttempt{"a hostile value from the cluster", "mallory", "create", configMapOverride("plaintext: [{path: /spec/paused, operator: add, valueFrom: {cel: 'cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, cluster.labels.all(d, a + b + c + d != \"\"))))'}}]"), "valueFrom"}},
	{"", userAttempt{"whose an object is, by merge", "mallory", "create", configMapOverride("mergePatch: {metadata: {labels: {atoll.dev/bundle-uid: theirs}}}"), "Atoll's own"}},
	{"", userAttempt{"whose an object is, by strategic merge", "mallory", "create", configMapOverride("strategicMerge: {metadata: {labels: {atoll.dev/bundle-uid: theirs}}}"), "Atoll's own"}},
}

// outOfSets tries to leave one's sets. Selectors are narrowed: TestSelectorsStayInTheSets.
var outOfSets = []attemptField{
	{"PropagationPolicy.spec.placement.clusterAffinity.clusterNames[]", userAttempt{"a neighbour's cluster", "mallory", "create", acmePlacement("clusterAffinity: {clusterNames: [rival-1]}"), `no cluster "rival-1" is in a cluster set that namespace "acme" may place on (acme-set)`}},
	{"", userAttempt{"a cluster that is not there", "mallory", "create", acmePlacement("clusterAffinity: {clusterNames: [rival-9]}"), `no cluster "rival-9" is in a cluster set that namespace "acme" may place on (acme-set)`}},
	{"PropagationPolicy.spec.placement.clusterSets[]", userAttempt{"a neighbour's set", "mallory", "create", acmePlacement("clusterSets: [rival-set]"), `may not place on cluster set "rival-set", but on acme-set`}},
	{"", userAttempt{"the set of all", "mallory", "create", acmePlacement("clusterSets: [default]"), `may not place on cluster set "default"`}},
	{"PropagationPolicy.spec.placement.clusterAffinities", userAttempt{"a neighbour's cluster to fall back to", "mallory", "create", acmePlacement("clusterAffinities: [{affinityName: first, clusterNames: [acme-1]}, {affinityName: then, clusterNames: [rival-1]}]"), "spec.placement.clusterAffinities"}},
	{"PropagationPolicy.spec.placement.replicaScheduling.weightPreference.staticWeightList[].targetCluster.clusterNames[]", userAttempt{"a weight for a neighbour's", "mallory", "create", acmePlacement("replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [rival-1]}, weight: 1}]}}"), "staticWeightList[0].targetCluster.clusterNames[0]"}},
	{"OverridePolicy.spec.overrideRules[].targetCluster.clusterNames[]", userAttempt{"an override in a neighbour's", "mallory", "create", strings.Replace(configMapOverride("replicas: 1"), "{overriders", "{targetCluster: {clusterNames: [rival-1]}, overriders", 1), "targetCluster.clusterNames[0]"}},
	{"OverridePolicy.spec.overrideRules[].targetCluster.clusterSets[]", userAttempt{"an override in a neighbour's set", "mallory", "create", targetedOverride("clusterSets: [acme-set, rival-set]"), `targetCluster.clusterSets[1]: Forbidden: namespace "acme" may not place on cluster set "rival-set", but on acme-set`}},
	{"OverridePolicy.spec.overrideRules[].targetCluster.celSelector", userAttempt{"an override by what agents report", "mallory", "create", targetedOverride("celSelector: \"cluster.properties['gpus'] == '8'\""), "label the Cluster instead"}},
	{"", userAttempt{"an override by a neighbour's labels", "mallory", "create", targetedOverride("celSelector: \"clusters['rival-1'].labels['owner'] == 'rival-corp'\""), "undeclared reference to 'clusters'"}},
	{"", userAttempt{"a hostile expression for clusters", "mallory", "create", targetedOverride("celSelector: 'cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, a + b + c != \"\")))'"), "targetCluster.celSelector"}},
	{"", userAttempt{"a neighbour's labels as a value", "mallory", "create", configMapOverride("envOverrider: [{operator: add, value: [{name: A, valueFrom: {cel: \"clusters['rival-1'].labels['owner']\"}}]}]"), "undeclared reference to 'clusters'"}},
	{"", userAttempt{"what agents report as a value", "mallory", "create", configMapOverride("envOverrider: [{operator: add, value: [{name: A, valueFrom: {cel: \"cluster.properties['gpus']\"}}]}]"), "valueFrom"}},
	{"", userAttempt{"a neighbour's set to fall back to", "mallory", "create", acmePlacement("clusterAffinities: [{affinityName: first, clusterNames: [acme-1]}, {affinityName: then, clusterSets: [rival-set]}]"), "spec.placement.clusterAffinities[1].clusterSets[0]"}},
	{"", userAttempt{"a Placement by another namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placementRef: {name: theirs, namespace: rival}"), "placementRef.namespace"}},
	{"Placement.spec", userAttempt{"a neighbour's cluster by a Placement", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: try, namespace: acme}, spec: {clusterAffinity: {clusterNames: [acme-1, rival-1]}}}", `spec.clusterAffinity.clusterNames[1]: Forbidden: no cluster "rival-1"`}},
	{"", userAttempt{"a neighbour's set by a Placement", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: Placement, metadata: {name: try, namespace: acme}, spec: {clusterSets: [rival-set]}}", "spec.clusterSets[0]"}},
	{"PropagationPolicy.spec.placementRef", userAttempt{"a Placement of another namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], placementRef: {name: rival/theirs}"), "spec.placementRef.name"}},
	{"ClusterPlacement", userAttempt{"a cluster placement", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPlacement, metadata: {name: try}}", "forbidden"}},
	{"PropagationPolicy.spec.rolloutRef", userAttempt{"a RolloutStrategy of another namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], rolloutRef: {name: rival/theirs}"), "spec.rolloutRef.name"}},
	{"", userAttempt{"a RolloutStrategy by another namespace", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], rolloutRef: {name: theirs, namespace: rival}"), "rolloutRef.namespace"}},
	{"", userAttempt{"a RolloutStrategy for another namespace", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: RolloutStrategy, metadata: {name: try, namespace: rival}, spec: {type: All}}", "forbidden"}},
	{"ClusterRolloutStrategy", userAttempt{"a rollout that is enforced for others", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterRolloutStrategy, metadata: {name: try}, spec: {type: All, enforcedFor: {namespaceSelector: {}}}}", "forbidden"}},
	{"ClusterScore.spec", userAttempt{"scores that count for others", "mallory", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterScore, metadata: {name: try, namespace: atoll-system}, spec: {clusterName: rival-1, scores: [{name: price, value: 0}]}}", "forbidden"}},
	{"ClusterSetBinding.spec.clusterSet", userAttempt{"a binding of one's own making", "mallory", "create", bindTo("acme", "rival-set"), "forbidden"}},
	{"", userAttempt{"one's binding taken away", "mallory", "delete", bindTo("acme", "acme-set"), "forbidden"}},
	{"ClusterSet.spec", userAttempt{"a set of all", "mallory", "create", set("mine", "{clusterSelector: {selectorType: LabelSelector, labelSelector: {}}, unboundNamespaces: Allow}"), "forbidden"}},
	{"Cluster.spec", userAttempt{"a cluster of one's own making", "mallory", "create", clusterOf("mine", "}, spec: {accepted: true}"), "forbidden"}},
	{"ClusterProfile.spec", userAttempt{"a cluster of one's own making in the inventory", "mallory", "create", "{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ClusterProfile, metadata: {name: try, namespace: acme}, spec: {clusterManager: {name: atoll}}}", "forbidden"}},
	{"", userAttempt{"a cluster brought into one's set", "mallory", "patch", clusterOf("rival-1", ", labels: {atoll.dev/set: acme-set}}"), "forbidden"}},
	{"", userAttempt{"a neighbour's cluster by annotation", "mallory", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: acme, annotations: {atoll.dev/clusters: 'acme-1,rival-1'}}}", `no cluster "rival-1"`}},
	{"", userAttempt{"what is in no namespace, by annotation", "mallory", "create", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: try, annotations: {atoll.dev/clusters: '*'}}, value: 1}", "may not get"}},
	{"", userAttempt{"the same by a user that may read all of it", "ella", "create", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: try, annotations: {atoll.dev/clusters: rival-1}}, value: 1}", "may not get"}},
	{"", userAttempt{"the namespace by annotation", "mallory", "patch", "{apiVersion: v1, kind: Namespace, metadata: {name: acme, annotations: {atoll.dev/clusters: '*'}}}", "may not get"}},
	{"", userAttempt{"another namespace by annotation", "mallory", "patch", "{apiVersion: v1, kind: Namespace, metadata: {name: rival, annotations: {atoll.dev/clusters: acme-1}}}", "may not get"}},
}

// beyondRights tries to exceed one's rights.
var beyondRights = []attemptField{
	{"PropagationPolicy.spec.resourceSelectors[].apiVersion", userAttempt{"Secrets of any version", "noah", "create", acmePolicy("resourceSelectors: [{apiVersion: v9, kind: Secret}]"), "may not get secrets"}},
	{"PropagationPolicy.spec.resourceSelectors[].labelSelector", userAttempt{"Secrets by label", "noah", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: Secret, labelSelector: {matchLabels: {a: b}}}]"), "may not get secrets"}},
	{"", userAttempt{"a Secret by name", "noah", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: Secret, name: plans}]"), `may not get "plans" of secrets`}},
	{"", userAttempt{"Secrets behind what is allowed", "noah", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}, {apiVersion: v1, kind: Secret}]"), "may not get secrets"}},
	{"", userAttempt{"Secrets by an update", "noah", "patch", strings.Replace(acmePolicy("resourceSelectors: [{apiVersion: v1, kind: Secret}]"), "name: try", "name: takes-over", 1), "may not get secrets"}},
	{"", userAttempt{"all Secrets instead of one", "noah", "patch", strings.Replace(acmePolicy("resourceSelectors: [{apiVersion: v1, kind: Secret}]"), "name: try", "name: all-secrets", 1), "may not get secrets"}},
	{"", userAttempt{"other clusters for what one may not read", "noah", "patch", strings.Replace(acmePolicy("placement: {clusterAffinity: {clusterNames: [acme-1]}}"), "name: try", "name: all-secrets", 1), "may not get"}},
	{"PropagationPolicy.spec.propagateDeps", userAttempt{"Secrets as dependencies", "noah", "create", acmePolicy("resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}], propagateDeps: true"), "may not get"}},
	{"PropagationPolicy.spec.conflictResolution", userAttempt{"taking over", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], conflictResolution: Overwrite"), "the verb takeover on propagationpolicies.atoll.dev"}},
	{"PropagationPolicy.spec.itemRules[].conflictResolution", userAttempt{"taking over one kind", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}], itemRules: [{conflictResolution: Overwrite}]"), "the verb takeover on propagationpolicies.atoll.dev"}},
	{"", userAttempt{"taking over by an annotation", "mallory", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: acme, annotations: {atoll.dev/conflict-resolution: Overwrite}}}", "the verb takeover on propagationpolicies.atoll.dev"}},
	{"", userAttempt{"taking over more", "mallory", "patch", strings.Replace(acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]"), "name: try", "name: takes-over", 1), "the verb takeover"}},
	{"", userAttempt{"taking over more where it is allowed", "", "patch", strings.Replace(acmePolicy("resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]"), "name: try", "name: takes-over", 1), ""}},
	{"", userAttempt{"taking over, taken back", "mallory", "patch", strings.Replace(acmePolicy("conflictResolution: Abort"), "name: try", "name: takes-over", 1), ""}},
	{"", userAttempt{"an annotation whose dependencies are Secrets", "noah", "create", "{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: acme, annotations: {atoll.dev/clusters: acme-1}}}", "may not get"}},
	{"OverridePolicy.spec.resourceSelectors[].apiVersion", userAttempt{"an override of Secrets", "noah", "create", acmeOverride("v1", "Secret", "labelsOverrider: [{operator: add, value: {a: b}}]"), "may not get secrets"}},
	{"", userAttempt{"an override of everything", "noah", "create", "{apiVersion: atoll.dev/v1alpha1, kind: OverridePolicy, metadata: {name: try, namespace: acme}, spec: {overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]}}", "may not get"}},
	{"OverridePolicy.spec.resourceSelectors[].name", userAttempt{"an override of a Secret by name", "noah", "create", strings.Replace(acmeOverride("v1", "Secret", "labelsOverrider: [{operator: add, value: {a: b}}]"), "kind: Secret}", "kind: Secret, name: plans}", 1), `may not get "plans" of secrets`}},
	{"OverridePolicy.spec.resourceSelectors[].labelSelector", userAttempt{"an override of Secrets by label", "noah", "create", strings.Replace(acmeOverride("v1", "Secret", "labelsOverrider: [{operator: add, value: {a: b}}]"), "kind: Secret}", "kind: Secret, labelSelector: {matchLabels: {a: b}}}", 1), "may not get secrets"}},
	{"", userAttempt{"data of Secrets by patch", "mallory", "create", acmeOverride("v1", "Secret", "plaintext: [{path: /data/a, operator: add, value: Yg==}]"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets by merge", "mallory", "create", acmeOverride("v1", "Secret", "mergePatch: {stringData: {a: b}}"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets by strategic merge", "mallory", "create", acmeOverride("v1", "Secret", "strategicMerge: {data: {a: Yg==}}"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets as a document", "mallory", "create", acmeOverride("v1", "Secret", "fieldOverrider: [{fieldPath: /data/a, yaml: [{subPath: /a, operator: add, value: b}]}]"), "data of Secrets"}},
	{"", userAttempt{"data of Secrets in order", "mallory", "create", acmeOverride("v1", "Secret", "ordered: [{mergePatch: {data: {a: Yg==}}}]"), "data of Secrets"}},
	{"ResourceInterpreter.spec", userAttempt{"knowledge of everybody's kinds", "mallory", "create", interpreterFor("{apiVersion: apps/v1, kinds: [Deployment]}"), "forbidden"}},
	{"ResourceInterpreterCustomization.spec", userAttempt{"knowledge of everybody's kinds, as Karmada has it", "mallory", "create", customizationFor("{apiVersion: apps/v1, kind: Deployment}"), "forbidden"}},
	{"", userAttempt{"Karmada's knowledge of kinds, by a user that may write all of Atoll's", "ella", "create", customizationFor("{apiVersion: apps/v1, kind: Deployment}"), "forbidden"}},
	{"", userAttempt{"Karmada's knowledge of Secrets", "", "create", customizationFor("{apiVersion: v1, kind: Secret}"), "scripts see no Secrets"}},
	{"", userAttempt{"what Karmada's users bring, placed", "mallory", "create", acmePolicy("resourceSelectors: [{apiVersion: config.karmada.io/v1alpha1, kind: ResourceInterpreterCustomization}]"), "cannot be placed"}},
	{"", userAttempt{"knowledge of kinds, by a user that may write all of Atoll's", "ella", "create", interpreterFor("{apiVersion: v1, kinds: [Secret]}"), "scripts see no Secrets"}},
	{"", userAttempt{"data of Secrets as an image", "mallory", "create", acmeOverride("v1", "Secret", "imageOverrider: [{predicate: {path: /data/a}, component: Tag, operator: replace, value: b}]"), "data of Secrets"}},
}

func bundleObject(kind, more string) string {
	return "{apiVersion: atoll.dev/v1alpha1, kind: " + kind + ", metadata: {name: try, namespace: acme}, " + more + "}"
}

func engineObject(kind, more string) string {
	return "{apiVersion: engine.atoll.dev/v1alpha1, kind: " + kind + ", metadata: {name: try}" + more + "}"
}

const bundleSpec = "spec: {source: {kind: ClusterPropagationPolicy, name: a}, conflictResolution: Overwrite, removal: {mode: Delete}, whenUnfit: Keep}"

// enginesOwn writes what only the hub writes, as a user with all rights in RBAC.
var enginesOwn = []userAttempt{
	{"a Bundle", "ella", "create", bundleObject("Bundle", bundleSpec), "only the hub writes"},
	{"a ClusterBundle", "ella", "create", strings.Replace(bundleObject("ClusterBundle", bundleSpec), ", namespace: acme", "", 1), "only the hub writes"},
	{"rows", "ella", "create", engineObject("TargetSlice", ", spec: {bundle: {uid: x, namespace: acme, name: bdl}, rows: ''}"), "only the hub writes"},
	{"a Revision", "ella", "create", engineObject("Revision", ", spec: {bundle: {uid: x, namespace: acme, name: bdl}, number: 1, items: 0}"), "only the hub writes"},
	{"a part of a Revision", "ella", "create", engineObject("RevisionPart", ", data: YQ=="), "only the hub writes"},
	{"a set of APIs", "ella", "create", engineObject("APISet", ", apis: []"), "only the hub writes"},
	{"the hub's state", "ella", "create", engineObject("HubState", ", chain: []"), "only the hub writes"},
	{"a decision", "ella", "create", "{apiVersion: atoll.dev/v1alpha1, kind: PlacementDecision, metadata: {name: try, namespace: acme}}", "only the hub writes"},
	{"a cluster decision", "ella", "create", "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPlacementDecision, metadata: {name: try}}", "only the hub writes"},
	{"a Bundle by a tenant", "mallory", "create", bundleObject("Bundle", bundleSpec), "forbidden"},
	{"rows by a tenant", "mallory", "create", engineObject("TargetSlice", ", spec: {bundle: {uid: x, namespace: acme, name: bdl}, rows: ''}"), "forbidden"},
	{"a token by a tenant", "mallory", "create", "{apiVersion: v1, kind: Secret, metadata: {name: try, namespace: atoll-system}}", "forbidden"},
	{"credentials of a member by a tenant", "mallory", "create", "{apiVersion: v1, kind: Secret, type: atoll.dev/push, metadata: {name: try, namespace: atoll-system, labels: {atoll.dev/push: acme-1}}, stringData: {server: 'https://10.0.0.1', token: x}}", "forbidden"},
	{"an agent's request by a tenant", "mallory", "create", "{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: try}, spec: {request: YQ==, signerName: atoll.dev/agent, usages: [client auth]}}", "forbidden"},
	{"one's own role", "mallory", "create", "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: try, namespace: acme}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]}", "forbidden"},
}

func TestTenantsStayWhereTheyAre(t *testing.T) {
	createNeighbours(t)
	for name, list := range map[string][]attemptField{"namespace": outOfNamespace, "patches": outOfPatches, "sets": outOfSets, "rights": beyondRights} {
		t.Run(name, func(t *testing.T) {
			for _, a := range list {
				playAttempts(t, []userAttempt{a.userAttempt})
			}
		})
	}
	t.Run("engine", func(t *testing.T) { playAttempts(t, enginesOwn) })
	t.Run("selectors", selectorsStayInTheSets)
	t.Run("kinds to come", kindsToComeStayInTheirScope)
	t.Run("explain", explainNamesNoNeighbours)
	t.Run("near", nothingIsNearOthers)
	t.Run("plans of what is refused", plansOfWhatIsRefused)
	t.Run("plans lend no rights", plansLendNoRights)
	t.Run("plans", plansNameNoNeighbours)
	t.Run("placements", placementsStayInTheSets)
	t.Run("expressions", hostileExpressionsAreCheap)
	t.Run("requests", requestsOfOthersAreNotAnswered)
}

// createNeighbours creates the objects of the neighbours.
func createNeighbours(t *testing.T) {
	t.Helper()
	apply(t, neighbourObjects)
	t.Cleanup(func() {
		_, _ = atollAs(context.WithoutCancel(t.Context()), testHub.kubeconfig, "tenant", "delete", "acme", "--with-namespace")
	})
	atollOK(t, "tenant", "create", "acme", "--set", "acme-set", "--user", "mallory", "--out", filepath.Join(t.TempDir(), "acme"))
	apply(t, noahBinding)
	for _, a := range []userAttempt{
		{"", "mallory", "create", acmePlacement("clusterAffinity: {clusterNames: [acme-1]}"), ""},
		{"", "mallory", "create", acmePlacement("clusterAffinity: {clusterNames: [rival-1]}"), `no cluster "rival-1"`},
		{"", "noah", "create", acmePlacement(""), ""},
		{"", "mallory", "create", "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: try}, value: 1}", ""},
		{"", "ella", "create", set("ellas", "{}"), ""},
	} {
		testwait.UntilNil(t, "the hub knows the neighbours", func(context.Context) error { return refusalDiffers(tryAs(t, a.user, a.verb, a.object), a.refused) })
	}
}

// rowsOutput returns the output of `atoll get rows` for an administrator.
func rowsOutput(t *testing.T, ns string) string {
	t.Helper()
	return atollOK(t, "get", "rows", "-n", ns)
}

// A selector reaches no further than the sets, whatever it selects.
func selectorsStayInTheSets(t *testing.T) {
	for i, placement := range []string{
		"",
		"clusterAffinity: {labelSelector: {matchExpressions: [{key: owner, operator: Exists}]}}",
		"clusterAffinity: {labelSelector: {matchExpressions: [{key: atoll.dev/set, operator: In, values: [acme-set, rival-set]}]}}",
		"clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [here, there]}]}}",
		"celSelector: 'true'",
		"celSelector: \"cluster.name.startsWith('rival') || cluster.labels['owner'] == 'rival-corp' || 'acme-set' in cluster.sets\"",
		"clusterTolerations: [{operator: Exists}]",
		"maxClusters: 3",
		"spreadConstraints: [{spreadByField: region, maxGroups: 2, minGroups: 1}]",
	} {
		t.Run(strings.ReplaceAll(placement, "/", "|"), func(t *testing.T) {
			name := fmt.Sprint("narrow-", i)
			apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: "+name+", namespace: acme}}\n---\n"+
				strings.NewReplacer("name: try", "name: "+name, "kind: ConfigMap}", "kind: ConfigMap, name: "+name+"}").Replace(acmePlacement(placement)))
			var mine []string
			testwait.UntilNil(t, "it is placed", func(context.Context) error {
				mine = nil
				for line := range strings.Lines(rowsOutput(t, "acme")) {
					if strings.Contains(line, name+"-") || strings.Contains(line, name+" ") {
						mine = append(mine, line)
					}
				}
				if len(mine) == 0 {
					return errors.New("it has no row yet")
				}
				return nil
			})
			playAttempts(t, []userAttempt{{"all rows deleted", "ella", "deletecollection", engineObject("TargetSlice", ""), "only the hub writes a TargetSlice"}})
			if len(mine) != 1 || !strings.Contains(mine[0], "acme-1") {
				t.Errorf("it is placed on\n%s", strings.Join(mine, ""))
			}
		})
	}
}

// A policy may select a kind before it is served. It reaches nothing outside of its
// namespace if the kind turns out to be cluster-scoped.
func kindsToComeStayInTheirScope(t *testing.T) {
	apply(t, acmePolicy("resourceSelectors: [{apiVersion: to.come/v1, kind: Reef}]"))
	reef := decodeObjects(t, "{apiVersion: to.come/v1, kind: Reef, metadata: {name: great}}")[0]
	apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: reefs.to.come}
spec:
  group: to.come
  scope: Cluster
  names: {kind: Reef, plural: reefs, singular: reef, listKind: ReefList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`)
	testwait.UntilNil(t, "the kind is served", func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(clientAs(t, "").Create(ctx, reef))
	})
	t.Cleanup(func() { _ = clientAs(t, "").Delete(context.WithoutCancel(t.Context()), reef) })
	// Once something placed of that kind has a Bundle, the other would have one too.
	apply(t, "{apiVersion: atoll.dev/v1alpha1, kind: ClusterPropagationPolicy, metadata: {name: reefs}, spec: {resourceSelectors: [{apiVersion: to.come/v1, kind: Reef, name: small}]}}\n---\n{apiVersion: to.come/v1, kind: Reef, metadata: {name: small}}")
	finalizers := func(ctx context.Context, name string) []string {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(reef.GroupVersionKind())
		if err := clientAs(t, "").Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
			t.Fatal(err)
		}
		return o.GetFinalizers()
	}
	testwait.UntilNil(t, "the other reef is placed", func(ctx context.Context) error {
		if len(finalizers(ctx, "small")) == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	if got := finalizers(t.Context(), "great"); len(got) > 0 {
		t.Errorf("a tenant's policy holds what is in no namespace: %q", got)
	}
}

// Texts that tenants can read name no cluster of others, and are the same with and without
// objects of others there.
func explainNamesNoNeighbours(t *testing.T) {
	apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: seen, namespace: acme}}\n---\n"+
		strings.NewReplacer("name: try", "name: seen", "kind: ConfigMap}", "kind: ConfigMap, name: seen}").Replace(acmePlacement("clusterAffinity: {labelSelector: {matchExpressions: [{key: owner, operator: Exists}]}}")))
	asMallory := filepath.Join(t.TempDir(), "mallory")
	writeImpersonation(t, asMallory, "mallory")
	testwait.UntilNil(t, "it is placed and explained", func(ctx context.Context) error {
		out, err := atollAs(ctx, asMallory, "explain", "configmap/seen", "-n", "acme")
		if err == nil && !strings.Contains(out, "acme-1") {
			return errors.New("the output is: " + out)
		}
		return err
	})
	for _, args := range [][]string{
		{"explain", "configmap/seen", "-n", "acme"},
		{"explain", "configmap/seen", "-n", "acme", "-o", "json"},
		{"explain", "propagationpolicy.atoll.dev/seen", "-n", "acme", "-o", "json"},
		{"get", "bundles", "-n", "acme", "-o", "json"},
	} {
		out, err := atollAs(t.Context(), asMallory, args...)
		if err != nil {
			t.Errorf("atoll %s: %v", strings.Join(args, " "), err)
		}
		if strings.Contains(out, "rival-1") || strings.Contains(out, "rival-2") {
			t.Errorf("atoll %s tells of a neighbour:\n%s", strings.Join(args, " "), out)
		}
	}
	said := map[string]string{}
	for _, name := range []string{"plans", "nosuch"} {
		out, err := atollAs(t.Context(), asMallory, "explain", "secret/"+name, "-n", "rival")
		if err == nil {
			t.Errorf("it explains %s: %s", name, out)
		}
		said[name] = strings.ReplaceAll(errorText(err), name, "NAME")
	}
	if said["plans"] != said["nosuch"] || strings.Contains(said["plans"], "xyzzy") {
		t.Errorf("an existing object and a missing one get different answers: %q and %q", said["plans"], said["nosuch"])
	}
	for _, cluster := range []string{"rival-1", "rival-2", "nosuch"} {
		_, err := atollAs(t.Context(), asMallory, "explain", "configmap/seen", "-n", "acme", "--cluster", cluster)
		said[cluster] = strings.ReplaceAll(errorText(err), cluster, "NAME")
	}
	if said["rival-1"] == "" || said["rival-1"] != said["nosuch"] || said["rival-2"] != said["nosuch"] {
		t.Errorf("a neighbour's cluster and a missing one get different answers: %q, %q and %q", said["rival-1"], said["rival-2"], said["nosuch"])
	}
}

// Only managers of a set of its cluster decide about an agent's request.
func requestsOfOthersAreNotAnswered(t *testing.T) {
	apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-cass}
rules: [{apiGroups: [atoll.dev], resources: [clustersets], resourceNames: [acme-set], verbs: [manage]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-cass}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-cass}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: cass}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-cass-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "atoll:cluster-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: cass}]
`)
	answer := func(ctx context.Context, cluster string) error {
		r := &certificatesv1.CertificateSigningRequest{}
		if err := clientAs(t, "").Get(ctx, client.ObjectKey{Name: "of-" + cluster}, r); err != nil {
			t.Fatal(err)
		}
		r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
		return clientAs(t, "cass").SubResource("approval").Update(ctx, r, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
	}
	for _, cluster := range []string{"acme-1", "rival-1", "nosuch"} {
		r := handshake.NewRequest(cluster, "uid", "203.0.113.7:4711", joinRequest(t), 3600)
		r.Name = "of-" + cluster
		if err := clientAs(t, "").Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = clientAs(t, "").Delete(context.WithoutCancel(t.Context()), r) })
	}
	testwait.UntilNil(t, "the request of a cluster in the set is answered", func(ctx context.Context) error { return answer(ctx, "acme-1") })
	for _, cluster := range []string{"rival-1", "nosuch"} {
		if err := answer(t.Context(), cluster); !apierrors.IsForbidden(err) || !strings.Contains(errorText(err), "is in no set that") {
			t.Errorf("the request of %s: %v", cluster, err)
		}
	}
}

func joinRequest(t *testing.T) trust.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := trust.NewCertificateRequest(key, "agent")
	if err != nil {
		t.Fatal(err)
	}
	r, err := trust.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hostileExpressionsAreCheap: expensive expressions are refused before their evaluation.
func hostileExpressionsAreCheap(t *testing.T) {
	nested := "cluster.labels.all(a, cluster.labels.all(b, cluster.labels.all(c, cluster.labels.all(d, a + b + c + d != ''))))"
	for _, expression := range []string{
		nested,
		"[" + strings.TrimSuffix(strings.Repeat("1,", 900), ",") + "].all(x, [" + strings.Repeat("1,", 100) + "1].all(y, x != y || x == y))",
		strings.Repeat("(", 900) + "true" + strings.Repeat(")", 900),
		strings.Repeat("a", 3000),
		"cluster.labels.map(k, cluster.labels.map(l, cluster.labels.map(m, k + l + m))).size() > 0",
	} {
		begin := time.Now()
		refusal := tryAs(t, "mallory", "create", acmePlacement("celSelector: "+fmt.Sprintf("%q", expression)))
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it takes %s to refuse %.60s", took, expression)
		}
		if !strings.Contains(refusal, "celSelector") {
			t.Errorf("%.60s: %q", expression, refusal)
		}
	}
}

// Every field that people write has an attempt, or a reason why it needs none.
func TestEveryFieldIsAttempted(t *testing.T) {
	var known []string
	for _, list := range [][]attemptField{outOfNamespace, outOfSets, beyondRights} {
		for _, a := range list {
			if a.field != "" {
				known = append(known, a.field)
			}
		}
	}
	known = slices.AppendSeq(known, maps.Keys(harmlessFields))
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := clientAs(t, "").List(t.Context(), &crds); err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds.Items {
		kind := crd.Spec.Names.Kind
		group := crd.Spec.Group
		if group == "engine.atoll.dev" || !atoll.IsHubOwnedKind(schema.GroupKind{Group: group, Kind: kind}) || slices.Contains([]string{"Bundle", "ClusterBundle", "PlacementDecision", "ClusterPlacementDecision"}, kind) {
			continue // of others, or the hub's alone to write
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		visitLeaves(kind+".spec", &spec, func(leaf string) {
			if !slices.ContainsFunc(known, func(field string) bool { return strings.HasPrefix(leaf, field) }) {
				t.Errorf("%s: what could a tenant reach by it? write an attempt, or why none is needed", leaf)
			}
		})
	}
}
