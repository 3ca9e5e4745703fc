package interpret

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// template of a workload's pods, at spec.template.
var template = []part{{template: at("spec.template")}}

var (
	specReplicas = at("spec.replicas")
	selector     = at("spec.selector")
)

// upstream kinds: those that Kubernetes itself serves.
var upstream = map[schema.GroupKind]kind{
	{Group: "apps", Kind: "Deployment"}: {health: deploymentHealth, reflect: reflectDeployment, aggregate: aggregateDeployment,
		replicas: specReplicas, pods: template, frozen: []path{selector}},
	{Group: "apps", Kind: "StatefulSet"}: {health: statefulSetHealth, reflect: reflectStatefulSet, aggregate: aggregateStatefulSet,
		replicas: specReplicas, together: true, pods: template,
		frozen: all("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates")},
	{Group: "apps", Kind: "DaemonSet"}: {health: daemonSetHealth, reflect: reflectDaemonSet, aggregate: aggregateDaemonSet, frozen: []path{selector}},
	{Group: "apps", Kind: "ReplicaSet"}: {health: replicaSetHealth, reflect: reflectReplicaSet, aggregate: aggregateReplicaSet,
		replicas: specReplicas, pods: template, frozen: []path{selector}},
	{Kind: "ReplicationController"}: {health: replicaSetHealth, reflect: reflectReplicaSet, aggregate: aggregateReplicaSet,
		replicas: specReplicas, pods: template},
	{Group: "batch", Kind: "Job"}: {health: jobHealth, reflect: reflectJob, aggregate: aggregateJob, ended: jobEnded, fixed: true,
		number: at("spec.parallelism"), pods: []part{{template: at("spec.template"), number: func(m map[string]any) int64 { return jobPods(child(m, "spec")) }}},
		member: all("spec.selector", "spec.template.metadata.labels"),
		frozen: all("spec.selector", "spec.template", "spec.completionMode", "spec.manualSelector", "spec.podReplacementPolicy")},
	{Group: "batch", Kind: "CronJob"}: {health: cronJobHealth, reflect: reflectCronJob, aggregate: aggregateCronJob},
	{Kind: "Pod"}: {health: podHealth, reflect: reflectPod, aggregate: aggregatePod, ended: podEnded, fixed: true, pods: []part{{template: path{}}},
		member: all("spec.nodeName", "spec.serviceAccountName", "spec.tolerations", "spec.priority", "spec.preemptionPolicy"),
		frozen: all("spec.nodeName", "spec.volumes", "spec.serviceAccountName", "spec.restartPolicy", "spec.hostNetwork", "spec.nodeSelector")},

	{Kind: "Service"}: {health: serviceHealth, reflect: reflectAddresses, aggregate: aggregateAddresses,
		member: all("spec.clusterIP", "spec.clusterIPs", "spec.ipFamilies", "spec.ipFamilyPolicy", "spec.healthCheckNodePort", "spec.ports[].nodePort"),
		frozen: all("spec.clusterIP", "spec.clusterIPs", "spec.loadBalancerClass")},
	{Group: "networking.k8s.io", Kind: "Ingress"}:       {health: existing, reflect: reflectAddresses, aggregate: aggregateAddresses},
	{Group: "networking.k8s.io", Kind: "IngressClass"}:  exists("spec.controller"),
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: exists(),
	{Group: "networking.k8s.io", Kind: "IPAddress"}:     {health: existing, frozen: all("spec.parentRef")},
	{Group: "networking.k8s.io", Kind: "ServiceCIDR"}:   {health: genericHealth, frozen: all("spec.cidrs")},
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:  exists("addressType"),
	{Kind: "Endpoints"}:                                         exists(),
	{Kind: "Node"}:                                              {health: genericHealth, member: all("spec.podCIDR", "spec.podCIDRs", "spec.providerID")},
	{Kind: "Namespace"}:                                         {health: existing, exists: true, member: all("spec.finalizers")},
	{Kind: "ConfigMap"}:                                         exists(),
	{Kind: "Secret"}:                                            exists("type"),
	{Kind: "ServiceAccount"}:                                    {health: existing, exists: true, member: all("secrets", "imagePullSecrets")},
	{Kind: "LimitRange"}:                                        exists(),
	{Kind: "ResourceQuota"}:                                     {health: existing},
	{Kind: "PodTemplate"}:                                       exists(),
	{Kind: "Event"}:                                             {health: existing},
	{Group: "events.k8s.io", Kind: "Event"}:                     {health: existing},
	{Group: "apps", Kind: "ControllerRevision"}:                 {health: existing, frozen: all("data")},
	{Group: "coordination.k8s.io", Kind: "Lease"}:               exists(),
	{Group: "coordination.k8s.io", Kind: "LeaseCandidate"}:      {health: existing},
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:                exists("handler"),
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:         exists("value", "preemptionPolicy"),
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}: {health: judge(reading{config: true, busy: []string{"Dangling"}, seen: true})},
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: {health: genericHealth},

	{Kind: "PersistentVolumeClaim"}: {health: claimHealth, reflect: reflectClaim, aggregate: aggregateClaim,
		member: all("spec.volumeName", "spec.storageClassName"),
		frozen: all("spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName", "spec.volumeMode", "spec.dataSource", "spec.dataSourceRef")},
	{Kind: "PersistentVolume"}: {health: volumeHealth, reflect: reflectVolume, aggregate: aggregateVolume,
		member: all("spec.claimRef"), frozen: all("spec.volumeMode", "spec.csi", "spec.nfs", "spec.hostPath", "spec.local", "spec.iscsi", "spec.fc")},
	{Group: "storage.k8s.io", Kind: "StorageClass"}:          exists("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
	{Group: "storage.k8s.io", Kind: "CSIDriver"}:             exists("spec.attachRequired", "spec.volumeLifecycleModes"),
	{Group: "storage.k8s.io", Kind: "CSINode"}:               {health: existing},
	{Group: "storage.k8s.io", Kind: "CSIStorageCapacity"}:    {health: existing, frozen: all("storageClassName", "nodeTopology")},
	{Group: "storage.k8s.io", Kind: "VolumeAttributesClass"}: {health: existing, frozen: all("driverName", "parameters")},
	{Group: "storage.k8s.io", Kind: "VolumeAttachment"}:      {health: existing, frozen: all("spec")},

	{Group: "policy", Kind: "PodDisruptionBudget"}:          {health: budgetHealth, reflect: reflectBudget, aggregate: aggregateBudget},
	{Group: "autoscaling", Kind: "HorizontalPodAutoscaler"}: {health: autoscalerHealth, reflect: reflectAutoscaler, aggregate: aggregateAutoscaler},

	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:               exists(),
	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        exists("roleRef"),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: exists("roleRef"),
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:        exists(),

	{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"}:     webhooks,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"}:   webhooks,
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"}:        {health: genericHealth},
	{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"}: {health: existing},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}:          {health: existing},
	{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicyBinding"}:   {health: existing},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {health: definitionHealth,
		member: all("spec.conversion.webhook.clientConfig.caBundle"), frozen: all("spec.group", "spec.scope", "spec.names.plural", "spec.names.kind")},
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:             {health: genericHealth, member: all("spec.caBundle")},
	{Group: "certificates.k8s.io", Kind: "CertificateSigningRequest"}: {health: signingHealth, frozen: all("spec")},
	{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}:        {health: existing, frozen: all("spec.signerName")},
	{Group: "resource.k8s.io", Kind: "DeviceClass"}:                   {health: existing},
	{Group: "resource.k8s.io", Kind: "ResourceClaim"}:                 {health: existing, frozen: all("spec")},
	{Group: "resource.k8s.io", Kind: "ResourceClaimTemplate"}:         {health: existing, frozen: all("spec")},
	{Group: "resource.k8s.io", Kind: "ResourceSlice"}:                 {health: existing},
	{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}: {
		health: judge(reading{bad: []string{"Failed"}, must: []string{"Succeeded"}})},
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}: {health: existing},
}

// webhooks keep the CA that something in the member put into them.
var webhooks = kind{health: existing, exists: true, member: all("webhooks[].clientConfig.caBundle")}

// exists is a kind without a status that says anything, and with these frozen fields.
func exists(frozen ...string) kind {
	return kind{health: existing, exists: true, frozen: all(frozen...)}
}

// ByExisting tells whether a kind of Kubernetes' own has no status that says anything,
// so that its objects are healthy by existing, and metadata is all that need be read.
func ByExisting(gk schema.GroupKind) bool { return of(gk).exists }

// RunsOnce tells whether objects of the kind run to completion, so that one which is gone
// is not made again for the same template, unless it NeverEnds.
func RunsOnce(gk schema.GroupKind) bool { return of(gk).ended != nil }

// RunsAgain tells whether an edit of an object of a kind that RunsOnce asks for another run.
// It does not of a Job or a Pod: nobody can edit what they run.
func RunsAgain(gk schema.GroupKind) bool {
	k := of(gk)
	return k.ended != nil && !k.fixed
}

// NeverEnds tells whether an object, although its kind RunsOnce, states that it is to go on
// for ever, such as a stream that is submitted anew whenever it ends. Such an object is to
// be there as long as its template is.
func NeverEnds(obj *unstructured.Unstructured) bool {
	k := known(obj)
	return k.endless != nil && k.endless(obj)
}

// Finished tells whether an object of a kind that RunsOnce has run to completion, well or
// not. Such an object is never to be created again for the same content, unless it
// NeverEnds and was stopped.
func Finished(obj *unstructured.Unstructured) bool {
	k := known(obj)
	return k.ended != nil && k.ended(obj)
}

func jobEnded(obj *unstructured.Unstructured) bool {
	cs := conditionsOf(status(obj))
	return find(cs, "Complete").is("True") || find(cs, "Failed").is("True")
}

func podEnded(obj *unstructured.Unstructured) bool {
	phase := text(status(obj), "phase")
	return phase == "Succeeded" || phase == "Failed"
}

// jobPods of a Job's spec: those that run at once.
func jobPods(spec map[string]any) int64 {
	n := countOr(spec, "parallelism", 1)
	return min(n, countOr(spec, "completions", n))
}
