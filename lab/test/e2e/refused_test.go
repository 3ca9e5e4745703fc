package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"atoll.dev/atoll/internal/testwait"
	"atoll.dev/atoll/lab"
)

// refusedObject is an object, the field that is wrong in it, and words of the reason.
type refusedObject struct {
	name, object, path, reason string
}

// The heads of the objects in the tables below; what is to be refused follows as the
// spec, indented by two.
const (
	propagationPrefix  = "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nmetadata: {name: refused, namespace: $NS}\nspec:\n  "
	clusterPropagation = "apiVersion: atoll.dev/v1alpha1\nkind: ClusterPropagationPolicy\nmetadata: {name: refused-$NS}\nspec:\n  "
	overridePrefix     = "apiVersion: atoll.dev/v1alpha1\nkind: OverridePolicy\nmetadata: {name: refused, namespace: $NS}\nspec:\n  "
	clusterPrefix      = "apiVersion: atoll.dev/v1alpha1\nkind: Cluster\nmetadata: {name: refused-$NS}\nspec:\n  "
	deploymentSelector = "resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]\n  "
)

func withPlacement(placement string) string {
	return propagationPrefix + deploymentSelector + "placement: " + placement
}
func withWeight(weight string) string {
	return withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: " + weight + "}]}}}")
}
func withOverriders(overriders string) string {
	return overridePrefix + deploymentSelector + "overrideRules: [{overriders: " + overriders + "}]"
}
func withPatch(patch string) string { return withOverriders("{plaintext: [" + patch + "]}") }
func withAnnotation(clusters string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: refused, namespace: $NS, annotations: {atoll.dev/clusters: '" + clusters + "'}}"
}

var badSelectors = []refusedObject{
	{"no selector", propagationPrefix + "placement: {}", "spec.resourceSelectors", "Required"},
	{"an empty list of selectors", propagationPrefix + "resourceSelectors: []", "spec.resourceSelectors", "at least 1"},
	{"a selector without a kind", propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1}]", "spec.resourceSelectors[0].kind", "Required"},
	{"a kind with a typing error", propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1, kind: Deploymet}]", "spec.resourceSelectors[0].kind", "no such kind"},
	{"a kind of another group", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: Deployment}]", "spec.resourceSelectors[0].kind", "no such kind"},
	{"any kind", propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1, kind: '*'}]", "spec.resourceSelectors[0].kind", "one kind"},
	{"a resource for a kind", propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1, kind: deployments}]", "spec.resourceSelectors[0].kind", "one kind"},
	{"a version of too many parts", propagationPrefix + "resourceSelectors: [{apiVersion: apps/v1/x, kind: Deployment}]", "spec.resourceSelectors[0].apiVersion", "GROUP/VERSION"},
	{"empty labels", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {}}]", "spec.resourceSelectors[0].labelSelector", "empty selector"},
	{"another namespace", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: other}]", "spec.resourceSelectors[0].namespace", "selects only there"},
	{"no name of a namespace", clusterPropagation + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, namespace: Not_One}]", "spec.resourceSelectors[0].namespace", "lower case"},
	{"no name of an object", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: a/b}]", "spec.resourceSelectors[0].name", "may not contain '/'"},
	{"a cluster-scoped kind in a namespace", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: Namespace}]", "spec.resourceSelectors[0].kind", "only a cluster policy"},
	{"a namespace of a cluster-scoped kind", clusterPropagation + "resourceSelectors: [{apiVersion: v1, kind: PersistentVolume, namespace: a}]", "spec.resourceSelectors[0].namespace", "has no namespace"},
	{"Atoll's own kind", propagationPrefix + "resourceSelectors: [{apiVersion: atoll.dev/v1alpha1, kind: OverridePolicy}]", "spec.resourceSelectors[0].kind", "cannot be placed"},
	{"an engine's kind", clusterPropagation + "resourceSelectors: [{apiVersion: engine.atoll.dev/v1alpha1, kind: Revision}]", "spec.resourceSelectors[0].kind", "cannot be placed"},
	{"what machinery makes", propagationPrefix + "resourceSelectors: [{apiVersion: coordination.k8s.io/v1, kind: Lease}]", "spec.resourceSelectors[0].kind", "cannot be placed"},
	{"a malformed key", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {'a b': c}}}]", "spec.resourceSelectors[0].labelSelector.matchLabels", "name part must consist"},
	{"a malformed value", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {a: 'b c'}}}]", "spec.resourceSelectors[0].labelSelector.matchLabels", "valid label must"},
	{"an unknown operator", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: a, operator: Within, values: [b]}]}}]", "spec.resourceSelectors[0].labelSelector.matchExpressions[0].operator", "not a valid selector operator"},
	{"nothing to be in", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: a, operator: In}]}}]", "spec.resourceSelectors[0].labelSelector.matchExpressions[0].values", "must be specified"},
	{"in and not in", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [b]}]}}]", "spec.resourceSelectors[0].labelSelector", "contradict each other"},
	{"there and not there", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}]", "spec.resourceSelectors[0].labelSelector", "contradict each other"},
	{"two values of one label", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [c]}]}}]", "spec.resourceSelectors[0].labelSelector", "contradict each other"},
	{"a group without its label", propagationPrefix + deploymentSelector + "groupBy: {type: Label}", "spec.groupBy", "labelKey is for type Label"},
	{"a label without its group", propagationPrefix + deploymentSelector + "groupBy: {type: Object, labelKey: a}", "spec.groupBy", "labelKey is for type Label"},
	{"a malformed label to group by", propagationPrefix + deploymentSelector + "groupBy: {type: Label, labelKey: 'a b'}", "spec.groupBy.labelKey", "name part must consist"},
}

var badPlacements = []refusedObject{
	{"empty labels", withPlacement("{clusterAffinity: {labelSelector: {}}}"), "spec.placement.clusterAffinity.labelSelector", "empty selector"},
	{"contradictory labels", withPlacement("{clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Exists}, {key: a, operator: DoesNotExist}]}}}"), "spec.placement.clusterAffinity.labelSelector", "contradict each other"},
	{"a malformed expression", withPlacement("{clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}}"), "spec.placement.clusterAffinity.labelSelector.matchExpressions[0].values", "may not be specified"},
	{"an unknown field of a cluster", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: [{key: country, operator: In, values: [eu]}]}}}"), "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].key", "the hub's admin"},
	{"an unknown operator on a field", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: Near, values: [eu]}]}}}"), "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].operator", "Unsupported value"},
	{"more than a word", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: Gt, values: [eu]}]}}}"), "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].values[0]", "must be a quantity"},
	{"bounds that contradict each other", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1, minReplicas: 5, maxReplicas: 4}]}}}"), "spec.placement.replicaScheduling.weightPreference.staticWeightList[0]", "minReplicas is above maxReplicas"},
	{"an entry that states nothing", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated, weightPreference: {staticWeightList: [{targetCluster: {}}]}}}"), "spec.placement.replicaScheduling.weightPreference.staticWeightList[0]", "state weight, minReplicas or maxReplicas"},
	{"weights beside dynamicWeight", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas, staticWeightList: [{targetCluster: {}, weight: 1}]}}}"), "spec.placement.replicaScheduling", "take no weights"},
	{"dynamicWeight under Aggregated", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated, weightPreference: {dynamicWeight: AvailableReplicas}}}"), "spec.placement.replicaScheduling", "dynamicWeight is for Weighted"},
	{"an unknown dynamic weight", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: Moon}}}"), "spec.placement.replicaScheduling.weightPreference.dynamicWeight", "Unsupported value"},
	{"weights under Aggregated", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated, weightPreference: {staticWeightList: [{targetCluster: {}, weight: 1}]}}}"), "spec.placement.replicaScheduling", "take no weights"},
	{"bounds without a weight", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {}, maxReplicas: 4}]}}}"), "spec.placement.replicaScheduling", "needs a weight"},
	{"overrides of what is duplicated", withPlacement("{replicaScheduling: {replicaSchedulingType: Duplicated, replicaOverrides: Allow}}"), "spec.placement.replicaScheduling", "need replicaSchedulingType Divided"},
	{"ordinals of what is duplicated", withPlacement("{replicaScheduling: {replicaSchedulingType: Duplicated, ordinals: {size: 10}}}"), "spec.placement.replicaScheduling", "need replicaSchedulingType Divided"},
	{"ranges of nothing", withPlacement("{replicaScheduling: {replicaSchedulingType: Divided, ordinals: {size: 0}}}"), "spec.placement.replicaScheduling.ordinals.size", "greater than or equal to 1"},
	{"overflow of what is duplicated", withPlacement("{maxClusters: 1, replicaScheduling: {replicaSchedulingType: Duplicated, overflow: Allow}}"), "spec.placement.replicaScheduling", "need replicaSchedulingType Divided"},
	{"overflow of all clusters", withPlacement("{replicaScheduling: {overflow: Allow}}"), "spec.placement.replicaScheduling.overflow", "all fitting clusters are chosen anyway"},
	{"a shortage of what is duplicated", withPlacement("{replicaScheduling: {replicaSchedulingType: Duplicated, onShortage: PlaceNothing}}"), "spec.placement.replicaScheduling", "need replicaSchedulingType Divided"},
	{"a field in nothing", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: []}]}}}"), "spec.placement.clusterAffinity.fieldSelector.matchExpressions[0].values", "needs at least one"},
	{"no expressions on fields", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: []}}}"), "spec.placement.clusterAffinity.fieldSelector.matchExpressions", "at least 1"},
	{"contradictory fields", withPlacement("{clusterAffinity: {fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}, {key: region, operator: NotIn, values: [eu]}]}}}"), "spec.placement.clusterAffinity.fieldSelector", "contradict each other"},
	{"a name that is excluded", withPlacement("{clusterAffinity: {clusterNames: [a, b], exclude: [b]}}"), "spec.placement.clusterAffinity.clusterNames[1]", "exclude"},
	{"a name twice", withPlacement("{clusterAffinity: {clusterNames: [a, a]}}"), "spec.placement.clusterAffinity.clusterNames[1]", "Duplicate"},
	{"no name of a cluster", withPlacement("{clusterAffinity: {clusterNames: [A_b]}}"), "spec.placement.clusterAffinity.clusterNames[0]", "not the name of a cluster"},
	{"no name of an excluded cluster", withPlacement("{clusterAffinity: {exclude: ['*']}}"), "spec.placement.clusterAffinity.exclude[0]", "not the name of a cluster"},
	{"a toleration of a value for Exists", withPlacement("{clusterTolerations: [{key: a, operator: Exists, value: b}]}"), "spec.placement.clusterTolerations[0].value", "must be empty"},
	{"a toleration of nothing", withPlacement("{clusterTolerations: [{operator: Equal, value: b}]}"), "spec.placement.clusterTolerations[0].operator", "must be Exists"},
	{"an unknown operator of a toleration", withPlacement("{clusterTolerations: [{key: a, operator: Near}]}"), "spec.placement.clusterTolerations[0].operator", "Unsupported value"},
	{"an unknown effect of a toleration", withPlacement("{clusterTolerations: [{key: a, operator: Exists, effect: Sometimes}]}"), "spec.placement.clusterTolerations[0].effect", "Unsupported value"},
	{"seconds without NoExecute", withPlacement("{clusterTolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]}"), "spec.placement.clusterTolerations[0].tolerationSeconds", "NoExecute"},
	{"no weight", withWeight("0"), "staticWeightList[0].weight", "greater than or equal to 1"},
	{"a negative weight", withWeight("-1"), "staticWeightList[0].weight", "greater than or equal to 1"},
	{"a large weight", withWeight("1000001"), "staticWeightList[0].weight", "less than or equal to 1000000"},
	{"an overflowing weight", withWeight("99999999999999999999"), "weight", "nteger"},
	{"a weight in words", withWeight("two"), "staticWeightList[0].weight", "must be of type integer"},
	{"a broken weight", withWeight("1.5"), "staticWeightList[0].weight", "must be of type integer"},
	{"no weights", withPlacement("{replicaScheduling: {weightPreference: {staticWeightList: []}}}"), "weightPreference.staticWeightList", "at least 1"},
	{"an unknown way to schedule", withPlacement("{replicaScheduling: {replicaSchedulingType: Halved}}"), "spec.placement.replicaScheduling.replicaSchedulingType", "Unsupported value"},
	{"an unknown way to divide", withPlacement("{replicaScheduling: {replicaDivisionPreference: Halved}}"), "spec.placement.replicaScheduling.replicaDivisionPreference", "Unsupported value"},
	{"a negative budget", propagationPrefix + deploymentSelector + "removal: {budget: -1}", "spec.removal.budget", "must not be negative"},
	{"a budget over all", propagationPrefix + deploymentSelector + "removal: {budget: 101%}", "spec.removal.budget", "percentage"},
	{"a budget in words", propagationPrefix + deploymentSelector + "removal: {budget: some}", "spec.removal.budget", "percentage"},
	{"an overflowing budget", propagationPrefix + deploymentSelector + "removal: {budget: 4294967297}", "spec.removal.budget", "2147483647"},
	{"an unknown removal", propagationPrefix + deploymentSelector + "removal: {mode: Forget}", "spec.removal.mode", "Unsupported value"},
	{"an overflowing priority", propagationPrefix + deploymentSelector + "priority: 2147483648", "spec.priority", "int32"},
	{"an unknown answer to conflicts", propagationPrefix + deploymentSelector + "conflictResolution: Merge", "spec.conflictResolution", "Unsupported value"},
	{"a grace period of a mode without one", propagationPrefix + deploymentSelector + "failover: {application: {purgeMode: Never, gracePeriodSeconds: 30}}", "spec.failover.application.gracePeriodSeconds", "has no grace period"},
	{"a toleration of a moment", propagationPrefix + deploymentSelector + "failover: {application: {decisionConditions: {tolerationSeconds: 1}}}", "spec.failover.application.decisionConditions.tolerationSeconds", "greater than or equal to 10"},
	{"an unknown answer to what does not fit", propagationPrefix + deploymentSelector + "whenUnfit: Wait", "spec.whenUnfit", "Unsupported value"},
	{"a malformed taint", clusterPrefix + "taints: [{key: 'a b', effect: NoSchedule}]", "spec.taints[0].key", "name part must consist"},
	{"a malformed value of a taint", clusterPrefix + "taints: [{key: a, value: 'b c', effect: NoSchedule}]", "spec.taints[0].value", "valid label must"},
	{"an unknown effect of a taint", clusterPrefix + "taints: [{key: a, effect: Sometimes}]", "spec.taints[0].effect", "Unsupported value"},
	{"a taint twice", clusterPrefix + "taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]", "spec.taints[1]", "Duplicate"},
	{"negative capacity", clusterPrefix + "capacity: {replicas: -1}", "spec.capacity.replicas", "greater than or equal to 0"},
	{"negative capacity of a resource", clusterPrefix + "capacity: {resources: {memory: -1Gi}}", "spec.capacity.resources[memory]", "must not be negative"},
	{"capacity of what no pod requests", clusterPrefix + "capacity: {resources: {gpu: 1}}", "spec.capacity.resources[gpu]", "nvidia.com/gpu"},
	{"capacity in words", clusterPrefix + "capacity: {resources: {cpu: many}}", "spec.capacity.resources", "should match"},
	{"an annotation of no clusters", withAnnotation("Tokyo_1"), "metadata.annotations[atoll.dev/clusters]", "not the name of a cluster"},
	{"an annotation of all and one", withAnnotation("*,tokyo"), "metadata.annotations[atoll.dev/clusters]", "not the name of a cluster"},
	{"an annotation with a hole", withAnnotation("tokyo,,oslo"), "metadata.annotations[atoll.dev/clusters]", "not the name of a cluster"},
	{"an annotation of an empty selector", withAnnotation("selector:"), "metadata.annotations[atoll.dev/clusters]", "selects nothing"},
	{"an annotation of a malformed selector", withAnnotation("selector: env in (a"), "metadata.annotations[atoll.dev/clusters]", "not a label selector"},
	{"an annotation of a contradiction", withAnnotation("selector: env=a,env=b"), "metadata.annotations[atoll.dev/clusters]", "contradict each other"},
	{"an annotation on Atoll's own", strings.Replace(withAnnotation("*"), "apiVersion: v1\nkind: ConfigMap", "apiVersion: atoll.dev/v1alpha1\nkind: PropagationPolicy\nspec: {resourceSelectors: [{apiVersion: v1, kind: ConfigMap}]}", 1), "metadata.annotations[atoll.dev/clusters]", "cannot be placed"},
}

var badOverrides = []refusedObject{
	{"no rules", overridePrefix + deploymentSelector + "overrideRules: []", "spec.overrideRules", "at least 1"},
	{"a rule that does nothing", withOverriders("{}"), "spec.overrideRules[0].overriders", "a rule without overriders does nothing"},
	{"a rule of an empty list", withOverriders("{plaintext: []}"), "spec.overrideRules[0].overriders", "does nothing"},
	{"an empty selector of clusters", overridePrefix + deploymentSelector + "overrideRules: [{targetCluster: {labelSelector: {}}, overriders: {replicas: 1}}]", "spec.overrideRules[0].targetCluster.labelSelector", "empty selector"},
	{"contradictory clusters", overridePrefix + deploymentSelector + "overrideRules: [{targetCluster: {clusterNames: [a], exclude: [a]}, overriders: {replicas: 1}}]", "spec.overrideRules[0].targetCluster.clusterNames[0]", "exclude"},
	{"negative replicas", withOverriders("{replicas: -1}"), "spec.overrideRules[0].overriders.replicas", "greater than or equal to 0"},
	{"overflowing replicas", withOverriders("{replicas: 2147483648}"), "spec.overrideRules[0].overriders.replicas", "int32"},
	{"a priority over the most", overridePrefix + deploymentSelector + "priority: 1001\n  overrideRules: [{overriders: {replicas: 1}}]", "spec.priority", "less than or equal to 1000"},
	{"a path without a slash", withPatch("{path: spec/replicas, operator: replace, value: 1}"), "plaintext[0].path", "should match"},
	{"a path of the whole", withPatch("{path: /, operator: replace, value: {}}"), "plaintext[0].path", "never touch"},
	{"a malformed escape", withPatch("{path: /metadata/labels/a~2b, operator: add, value: c}"), "plaintext[0].path", "~"},
	{"an unknown operation", withPatch("{path: /spec/replicas, operator: rename}"), "plaintext[0].operator", "Unsupported value"},
	{"a move from nowhere", withPatch("{path: /spec/replicas, operator: move}"), "plaintext[0].from", "needs a path"},
	{"a test of no value", withPatch("{path: /spec/replicas, operator: test}"), "plaintext[0].value", "needs a value"},
	{"a field that the kind does not have", withOverriders("{mergePatch: {spec: {resourcez: {}}}}"), "spec.overrideRules[0].overriders.mergePatch", "have no field /spec/resourcez"},
	{"a digest that is none", withOverriders("{imageOverrider: [{component: Digest, operator: add, value: v1}]}"), "imageOverrider[0].value", "is not a digest"},
	{"nothing to set", withPatch("{path: /spec/replicas, operator: replace}"), "plaintext[0].value", "needs a value"},
	{"something to remove with", withPatch("{path: /spec/replicas, operator: remove, value: 1}"), "plaintext[0].value", "takes no value"},
	{"the name", withPatch("{path: /metadata/name, operator: replace, value: a}"), "plaintext[0].path", "never touch"},
	{"the namespace", withPatch("{path: /metadata/namespace, operator: replace, value: a}"), "plaintext[0].path", "never touch"},
	{"owners", withPatch("{path: /metadata/ownerReferences, operator: add, value: []}"), "plaintext[0].path", "never touch"},
	{"finalizers", withPatch("{path: /metadata/finalizers/0, operator: remove}"), "plaintext[0].path", "never touch"},
	{"all metadata", withPatch("{path: /metadata, operator: replace, value: {}}"), "plaintext[0].path", "never touch"},
	{"the kind", withPatch("{path: /kind, operator: replace, value: Pod}"), "plaintext[0].path", "never touch"},
	{"the version", withPatch("{path: /apiVersion, operator: replace, value: v1}"), "plaintext[0].path", "never touch"},
	{"the status", withPatch("{path: /status/replicas, operator: replace, value: 1}"), "plaintext[0].path", "never touch"},
	{"Atoll's own label by patch", withPatch("{path: /metadata/labels/atoll.dev~1bundle-uid, operator: add, value: a}"), "plaintext[0].path", "Atoll's own"},
	{"Atoll's own label by value", withPatch("{path: /metadata/labels, operator: add, value: {atoll.dev/bundle-uid: a}}"), "plaintext[0].path", "Atoll's own"},
	{"Atoll's own label", withOverriders("{labelsOverrider: [{operator: add, value: {atoll.dev/bundle-uid: a}}]}"), "labelsOverrider[0].value", "Atoll's own"},
	{"a malformed label", withOverriders("{labelsOverrider: [{operator: add, value: {a: 'b c'}}]}"), "labelsOverrider[0].value", "valid label must"},
	{"a malformed annotation", withOverriders("{annotationsOverrider: [{operator: add, value: {'a b': c}}]}"), "annotationsOverrider[0].value", "name part must consist"},
	{"no registry", withOverriders("{imageOverrider: [{component: Registry, operator: replace, value: 'not one'}]}"), "imageOverrider[0].value", "not a registry"},
	{"no tag", withOverriders("{imageOverrider: [{component: Tag, operator: replace, value: 'a b'}]}"), "imageOverrider[0].value", "neither a tag nor a digest"},
	{"an image without a repository", withOverriders("{imageOverrider: [{component: Repository, operator: remove}]}"), "imageOverrider[0].value", "replace it instead"},
	{"an image of nothing", withOverriders("{imageOverrider: [{component: Tag, operator: replace}]}"), "imageOverrider[0].value", "needs a value"},
	{"an unknown part of an image", withOverriders("{imageOverrider: [{component: Layer, operator: remove}]}"), "imageOverrider[0].component", "Unsupported value"},
	{"an image that is the name", withOverriders("{imageOverrider: [{predicate: {path: /metadata/name}, component: Tag, operator: remove}]}"), "imageOverrider[0].predicate.path", "never touch"},
	{"RBAC", overridePrefix + "resourceSelectors: [{apiVersion: rbac.authorization.k8s.io/v1, kind: Role}]\n  overrideRules: [{overriders: {labelsOverrider: [{operator: add, value: {a: b}}]}}]", "spec.resourceSelectors[0]", "only a ClusterOverridePolicy"},
	{"data of Secrets", overridePrefix + "resourceSelectors: [{apiVersion: v1, kind: Secret}]\n  overrideRules: [{overriders: {plaintext: [{path: /data/a, operator: add, value: Yg==}]}}]", "spec.overrideRules[0].overriders", "data of Secrets"},
	{"Atoll's own kind", overridePrefix + "resourceSelectors: [{apiVersion: atoll.dev/v1alpha1, kind: Cluster}]\n  overrideRules: [{overriders: {replicas: 1}}]", "spec.resourceSelectors[0].kind", "cannot be placed"},
}

var badFields = []refusedObject{
	{"an unknown field", propagationPrefix + deploymentSelector + "colour: blue", "spec.colour", "unknown field"},
	{"a field with a typing error", withPlacement("{clusterAffinty: {}}"), "spec.placement.clusterAffinty", "unknown field"},
	{"an unknown field of a placement", withPlacement("{spread: [{spreadByField: zone}]}"), "spec.placement.spread", "unknown field"},
	{"an unknown field of a selector", propagationPrefix + "resourceSelectors: [{apiVersion: v1, kind: ConfigMap, names: a}]", "spec.resourceSelectors[0].names", "unknown field"},
	{"an unknown field of an override", withOverriders("{replicas: 1, imagesOverrider: []}"), "spec.overrideRules[0].overriders.imagesOverrider", "unknown field"},
	{"an unknown connection of a cluster", clusterPrefix + "connection: {type: Pigeon}", "spec.connection.type", "Unsupported value"},
	{"an interval of a stream", clusterPrefix + "connection: {interval: 15m}", "spec.connection", "interval is for type CheckIn"},
	{"check-ins too often", clusterPrefix + "connection: {type: CheckIn, interval: 9s}", "spec.connection.interval", "from 10s to 24h"},
	{"check-ins too far apart", clusterPrefix + "connection: {type: CheckIn, interval: 25h}", "spec.connection.interval", "from 10s to 24h"},
	{"an interval that is none", clusterPrefix + "connection: {type: CheckIn, interval: soon}", "spec.connection.interval", "duration"},
	{"an unknown field of a cluster", clusterPrefix + "colour: blue", "spec.colour", "unknown field"},
	{"a Bundle of one's own", "apiVersion: atoll.dev/v1alpha1\nkind: Bundle\nmetadata: {name: refused, namespace: $NS}\nspec: {source: {kind: Annotation, name: a}, conflictResolution: Abort, removal: {mode: Delete}, whenUnfit: Keep}", "Bundle", "only the hub writes"},
}

// The tables use the API without kubectl's strictness: the hub is strict about its own
// kinds by itself.
func TestBadInputIsRefusedWithPathAndReason(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "refused")
	for group, list := range map[string][]refusedObject{"selectors": badSelectors, "placements": badPlacements, "overrides": badOverrides, "item rules": badItemRules, "fields": badFields} {
		for _, r := range list {
			t.Run(group+"/"+strings.ReplaceAll(r.name, " ", "_"), func(t *testing.T) {
				message := tryCreate(t.Context(), t, strings.ReplaceAll(r.object, "$NS", ns))
				for _, want := range []string{r.path, r.reason} {
					if !strings.Contains(message, want) {
						t.Errorf("the refusal does not contain %q:\n%s", want, message)
					}
				}
			})
		}
	}
}

// tryCreate creates an object from YAML as a dry run, and returns the refusal; "(accepted)"
// for none.
func tryCreate(ctx context.Context, t *testing.T, text string) string {
	t.Helper()
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("yaml: %v\n%s", err, text)
	}
	err := hubClient().Create(ctx, &o, client.DryRunAll)
	if err == nil {
		return "(accepted)"
	}
	return err.Error()
}

// kubectlOutput runs upstream's kubectl, as the lab has it, against the hub, and gives all
// that it printed.
func kubectlOutput(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	return binaryOutput(t, stdin, "atoll-lab", append([]string{"kubectl", "--kubeconfig", sharedWorld.lab.KubeconfigPath("hub")}, args...)...)
}

// longLimit bounds a command: a longer one hangs.
const longLimit = 5 * testwait.HangLimit

// binaryOutput runs a built binary and gives all that it printed, whatever its exit status.
func binaryOutput(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	return binaryFor(t.Context(), t, stdin, name, args...)
}

func binaryFor(ctx context.Context, t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, longLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(lab.BinDirVariable), name), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		out.WriteString("\n" + err.Error())
	}
	return out.String()
}

// Messages for users of kubectl, for each way of writing.
func TestKubectlShowsTheRefusal(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "refused-kubectl")
	bad := strings.ReplaceAll(withPlacement("{clusterAffinity: {clusterNames: [a], exclude: [a]}}"), "$NS", ns)
	good := strings.ReplaceAll(withPlacement("{clusterAffinity: {clusterNames: [nowhere]}}"), "$NS", ns)
	const path, reason = "spec.placement.clusterAffinity.clusterNames[0]", "is named in exclude too"
	says := func(out string) {
		t.Helper()
		if !strings.Contains(out, path) || !strings.Contains(out, reason) {
			t.Errorf("kubectl shows neither path nor reason:\n%s", out)
		}
	}
	says(kubectlOutput(t, bad, "apply", "-f", "-"))
	says(kubectlOutput(t, bad, "apply", "--server-side", "-f", "-"))
	says(kubectlOutput(t, bad, "create", "--validate=false", "-f", "-"))
	if out := kubectlOutput(t, good, "apply", "-f", "-"); !strings.Contains(out, "created") {
		t.Fatalf("a good policy is refused:\n%s", out)
	}
	says(kubectlOutput(t, bad, "apply", "-f", "-"))
	says(kubectlOutput(t, "", "patch", "-n", ns, "ppol", "refused", "--type=merge", "-p", `{"spec":{"placement":{"clusterAffinity":{"clusterNames":["a"],"exclude":["a"]}}}}`))
	if out := kubectlOutput(t, "", "patch", "-n", ns, "ppol", "refused", "--type=merge", "-p", `{"spec":{"placment":{}}}`); !strings.Contains(out, `unknown field "spec.placment"`) {
		t.Errorf("an unknown field in a patch is not refused:\n%s", out)
	}
	if out := kubectlOutput(t, "", "annotate", "-n", ns, "ppol", "refused", "atoll.dev/clusters=*"); !strings.Contains(out, "cannot be placed") {
		t.Errorf("a policy may be annotated:\n%s", out)
	}
}

// A refusal by one cluster shows at its row with reason and since, on the template as an
// Event, and nowhere else: the other clusters and the other items continue. It heals.
func TestOneClusterRefuses(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "refuses")
	// A clash with something that is not ours, in member1 only.
	foreign := decodeObjects(t, ns, "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS}\n---\n"+strings.ReplaceAll(settingsObject, "blue", "theirs"))
	for _, o := range foreign {
		if err := sharedWorld.clients["member1"].Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	// The override comes before the policy: what member2 got before the override existed would stay there.
	apply(t, ns, settingsObject+"---"+strings.Replace(settingsObject, "name: web", "name: patched", 1)+"---"+strings.Replace(settingsObject, "name: web", "name: fine", 1)+`---
apiVersion: atoll.dev/v1alpha1
kind: OverridePolicy
metadata: {name: broken, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: v1, kind: ConfigMap, name: patched}]
  overrideRules:
  - targetCluster: {clusterNames: [member2]}
    overriders: {plaintext: [{path: /data/there/is/none, operator: replace, value: a}]}
`+"---"+selectingPolicy("web", "", "member1", "member2", "member3"))
	row := func(m string, words ...string) func(context.Context) error {
		return func(context.Context) error {
			out := kubectlRow(t, ns, m)
			for _, w := range words {
				if !strings.Contains(out, w) {
					return errors.New(m + " does not contain " + w + ":\n" + out)
				}
			}
			return nil
		}
	}
	testwait.UntilNil(t, "the clash is shown", row("member1", "Failed", "2/3", "ConfigMap", "web", "Conflict", "managed by", "conflictResolution"))
	testwait.UntilNil(t, "the patch that does not apply is shown", row("member2", "Failed", "2/3", "patched", "OverridePolicy/"+ns+"/broken", "/data/there"))
	testwait.UntilNil(t, "others go on", allChecks(row("member3", "Ready", "3/3"),
		colourIn("member1", ns, "fine", "blue"), colourIn("member1", ns, "patched", "blue"), colourIn("member2", ns, "web", "blue"), colourIn("member2", ns, "fine", "blue"),
		inCluster("member2", "v1", "ConfigMap", ns, "patched", false), colourIn("member1", ns, "web", "theirs")))
	testwait.UntilNil(t, "Events on the templates", func(context.Context) error {
		out := kubectlOutput(t, "", "get", "events", "-n", ns)
		for _, want := range []string{"configmap/web", "Conflict", "configmap/patched", "broken"} {
			if !strings.Contains(out, want) {
				return errors.New("no Event says " + want + ":\n" + out)
			}
		}
		return nil
	})

	// The next edit of one item is not held up by the other.
	patch(t, "v1", "ConfigMap", ns, "fine", `{"data":{"colour":"red"}}`)
	testwait.UntilNil(t, "edits go on", allChecks(colourIn("member1", ns, "fine", "red"), colourIn("member2", ns, "fine", "red"), colourIn("member3", ns, "fine", "red")))
	remove(t, "atoll.dev/v1alpha1", "OverridePolicy", ns, "broken")
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"conflictResolution":"AdoptIfSame"}}`)
	testwait.UntilNil(t, "the patch is gone", allChecks(row("member2", "Ready", "3/3"), colourIn("member2", ns, "patched", "blue")))
	testwait.UntilNil(t, "it is not the same", row("member1", "Failed", "/data/colour"))
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"conflictResolution":"Overwrite"}}`)
	testwait.UntilNil(t, "Overwrite takes it over", allChecks(row("member1", "Ready", "3/3"), colourIn("member1", ns, "web", "blue")))
	remove(t, "v1", "ConfigMap", ns, "web")
	testwait.UntilNil(t, "what was taken over is kept on removal", allChecks(inCluster("hub", "v1", "ConfigMap", ns, "web", false),
		inCluster("member2", "v1", "ConfigMap", ns, "web", false), inCluster("member1", "v1", "ConfigMap", ns, "web", true)))
}

// kubectlRow returns the line of a cluster in `atoll get rows`.
func kubectlRow(t *testing.T, ns, cluster string) string {
	t.Helper()
	out := runCLI(t, "get", "rows", "-n", ns)
	for line := range strings.Lines(out) {
		if strings.Contains(line, " "+cluster+" ") {
			return line
		}
	}
	return out
}

// A kind that a member does not serve, and an object that is too large to be stored.
func TestContentThatAMemberCannotTake(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t, "cannot")
	apply(t, ns, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.$NS.example.com}
spec:
  group: $NS.example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: atoll.dev/v1alpha1
kind: PropagationPolicy
metadata: {name: web, namespace: $NS}
spec:
  resourceSelectors: [{apiVersion: $NS.example.com/v1, kind: Gadget}, {apiVersion: v1, kind: ConfigMap, name: web}]
  placement: {clusterAffinity: {clusterNames: [member1]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: $NS}
data: {colour: blue}
`)
	t.Cleanup(func() {
		kubectlFor(context.WithoutCancel(t.Context()), t, "delete", "crd", "gadgets."+ns+".example.com", "--ignore-not-found")
	})
	gadget := strings.ReplaceAll("apiVersion: $NS.example.com/v1\nkind: Gadget\nmetadata: {name: one, namespace: $NS}\nspec: {size: 1}", "$NS", ns)
	testwait.UntilNil(t, "the hub serves the kind", func(context.Context) error {
		if out := kubectlOutput(t, gadget, "apply", "-f", "-"); strings.Contains(out, "exit status") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	testwait.UntilNil(t, "the kind is missing there", func(context.Context) error {
		if out := kubectlRow(t, ns, "member1"); !strings.Contains(out, "Gadget") || !strings.Contains(out, "NotServed") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
	testwait.UntilNil(t, "the other item is there", colourIn("member1", ns, "web", "blue"))
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"propagateDeps":true}}`)
	testwait.UntilNil(t, "with its definition it is there", inCluster("member1", ns+".example.com/v1", "Gadget", ns, "one", true))

	// Bytes that no compression makes smaller, close to what etcd takes at all.
	noise := make([]byte, 1_020_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	large := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "large", "namespace": ns, "annotations": map[string]any{"atoll.dev/clusters": "member1"}},
		"binaryData": map[string]any{"noise": base64.StdEncoding.EncodeToString(noise)},
	}}
	tooLarge := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "binaryData.noise") || !strings.Contains(err.Error(), "too large to be sent") {
			t.Errorf("%s: %v", what, err)
		}
	}
	tooLarge("a large object that its annotation places", hubClient().Create(t.Context(), large))
	large.SetAnnotations(nil)
	if err := hubClient().Create(t.Context(), large); err != nil {
		t.Fatalf("a large object without a policy: %v", err)
	}
	large.SetAnnotations(map[string]string{"atoll.dev/clusters": "member1"})
	tooLarge("placing it by an annotation", hubClient().Update(t.Context(), large))
	patch(t, "atoll.dev/v1alpha1", "PropagationPolicy", ns, "web", `{"spec":{"resourceSelectors":[{"apiVersion":"v1","kind":"ConfigMap"}]}}`)
	testwait.UntilNil(t, "the policy shows the reason", func(context.Context) error {
		if out := kubectlOutput(t, "", "get", "events", "-n", ns); !strings.Contains(out, "too large") {
			return errors.New("the output is: " + out)
		}
		return nil
	})
}
