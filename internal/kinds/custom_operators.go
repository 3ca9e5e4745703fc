package kinds

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/quantity"
)

// prometheusHealth is for kinds of the Prometheus operator that run pods.
var prometheusHealth = newHealthFunc(healthReader{pausedField: parsePath("spec.paused"), requiredConditions: []string{"Reconciled", "Available"}})

// specComponent is a component whose resources are at spec.resources.
func specComponent(name string, number func(map[string]any) int64) []podPart {
	return []podPart{{name: name, countPods: number, readRequests: requestsAt("spec.resources")}}
}

// prometheusKinds: the workloads of the Prometheus operator, and their configuration.
var prometheusKinds = customKinds{
	{Group: "monitoring.coreos.com", Kind: "Prometheus"}:         {health: prometheusHealth, podParts: specComponent("prometheus", countPrometheusPods)},
	{Group: "monitoring.coreos.com", Kind: "PrometheusAgent"}:    {health: prometheusHealth, podParts: specComponent("prometheus", countPrometheusPods)},
	{Group: "monitoring.coreos.com", Kind: "Alertmanager"}:       {health: prometheusHealth, podParts: specComponent("alertmanager", podCountAt("spec.replicas", 1))},
	{Group: "monitoring.coreos.com", Kind: "ThanosRuler"}:        {health: prometheusHealth, podParts: specComponent("thanos-ruler", podCountAt("spec.replicas", 1))},
	{Group: "monitoring.coreos.com", Kind: "ServiceMonitor"}:     bindingTraits,
	{Group: "monitoring.coreos.com", Kind: "PodMonitor"}:         bindingTraits,
	{Group: "monitoring.coreos.com", Kind: "Probe"}:              bindingTraits,
	{Group: "monitoring.coreos.com", Kind: "ScrapeConfig"}:       bindingTraits,
	{Group: "monitoring.coreos.com", Kind: "PrometheusRule"}:     bindingTraits,
	{Group: "monitoring.coreos.com", Kind: "AlertmanagerConfig"}: bindingTraits,
}

// bindingTraits are for configuration. Newer versions of the operator report which workloads
// accept it; a refusal lasts until the configuration changes.
var bindingTraits = kindTraits{health: prometheusConfigHealth}

func prometheusConfigHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	for _, b := range listField(statusOf(obj), "bindings") {
		m, _ := b.(map[string]any)
		switch c := findCondition(conditionsOf(m), "Accepted"); {
		case c.hasObserved && c.observedGeneration < obj.GetGeneration():
			return notObservedResult()
		case c.hasStatus("False"):
			return atoll.Degraded, orElse(c.reason, "NotAccepted"), orElse(c.message, stringField(m, "resource")+" "+stringField(m, "name")+" does not accept it")
		}
	}
	return healthyResult()
}

// countPrometheusPods: each shard has all replicas. Agents that run on every node are not counted.
func countPrometheusPods(m map[string]any) int64 {
	sp := nestedMap(m, "spec")
	if stringField(sp, "mode") == "DaemonSet" {
		return 0
	}
	return quantity.MultiplyCapped(countFieldOr(sp, "replicas", 1), countFieldOr(sp, "shards", 1))
}

// strimziKinds: Kafka and its resources.
var strimziKinds = customKinds{
	{Group: "kafka.strimzi.io", Kind: "Kafka"}: {health: kafkaHealth, podParts: []podPart{
		{name: "kafka", countPods: podCountAt("spec.kafka.replicas", 0), readRequests: requestsAt("spec.kafka.resources")},
		{name: "zookeeper", countPods: podCountAt("spec.zookeeper.replicas", 0), readRequests: requestsAt("spec.zookeeper.resources")},
	}},
	{Group: "kafka.strimzi.io", Kind: "KafkaNodePool"}:     {health: observedHealth, podParts: specComponent("kafka", podCountAt("spec.replicas", 0))},
	{Group: "kafka.strimzi.io", Kind: "KafkaConnect"}:      {health: kafkaHealth, podParts: specComponent("connect", podCountAt("spec.replicas", 3))},
	{Group: "kafka.strimzi.io", Kind: "KafkaMirrorMaker2"}: {health: kafkaHealth, podParts: specComponent("mirror-maker", podCountAt("spec.replicas", 3))},
	{Group: "kafka.strimzi.io", Kind: "KafkaBridge"}:       {health: kafkaHealth, podParts: specComponent("bridge", podCountAt("spec.replicas", 1))},
	{Group: "kafka.strimzi.io", Kind: "KafkaConnector"}:    {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaTopic"}:        {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaUser"}:         {health: kafkaHealth},
	{Group: "kafka.strimzi.io", Kind: "KafkaRebalance"}:    {health: kafkaRebalanceHealth},
}

// kafkaRefusals are reasons for not being ready that last until the spec changes.
var kafkaRefusals = map[string]bool{
	"InvalidResourceException": true, "InvalidRequestException": true, "NotSupported": true, "ResourceConflict": true,
}

// kafkaHealth: a cluster that is NotReady is tried again every few minutes, except for
// kafkaRefusals.
func kafkaHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	cs := conditionsOf(statusOf(obj))
	for _, c := range []condition{findCondition(cs, "NotReady"), findCondition(cs, "Ready")} {
		if c.hasStatus(map[string]string{"NotReady": "True", "Ready": "False"}[c.conditionType]) && kafkaRefusals[c.reason] {
			return atoll.Degraded, c.reason, c.message
		}
	}
	r := healthReader{suspendedConditions: []string{"ReconciliationPaused"}, progressingConditions: []string{"NotReady"}, requiredConditions: []string{"Ready"}}
	return r.readHealth(obj)
}

// kafkaRebalanceHealth: a rebalance that is not ready waits for another request. A template of
// rebalances never starts.
func kafkaRebalanceHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	if obj.GetAnnotations()["strimzi.io/rebalance-template"] == "true" {
		return healthyResult()
	}
	r := healthReader{suspendedConditions: []string{"ProposalReady", "ReconciliationPaused", "Stopped"}, degradedConditions: []string{"NotReady"},
		progressingConditions: []string{"PendingProposal", "Rebalancing"}, requiredConditions: []string{"Ready"}}
	return r.readHealth(obj)
}

// cloudNativePGKinds: databases, their backups, and connection poolers.
var cloudNativePGKinds = customKinds{
	{Group: "postgresql.cnpg.io", Kind: "Cluster"}: {
		health:   newHealthFunc(healthReader{suspendedConditions: []string{"cnpg.io/hibernation"}, requiredConditions: []string{"Ready"}}),
		podParts: specComponent("postgres", podCountAt("spec.instances", 1))},
	{Group: "postgresql.cnpg.io", Kind: "Backup"}: {hasEnded: endedInPhase(defaultPhasePath, "completed", "failed"),
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, messagePath: parsePath("error"), otherPhases: phaseProgressing, phaseHealth: map[string]atoll.Health{
			"completed": phaseHealthy, "failed": phaseDegraded, "walArchivingFailing": phaseProgressing}})},
	{Group: "postgresql.cnpg.io", Kind: "ScheduledBackup"}: {health: newHealthFunc(healthReader{pausedField: parsePath("spec.suspend"), healthyWithoutStatus: true, observedIsEnough: true})},
	{Group: "postgresql.cnpg.io", Kind: "Pooler"}: {health: existenceHealth, podParts: []podPart{
		{name: "pooler", countPods: podCountAt("spec.instances", 1), templatePath: parsePath("spec.template")}}},
	{Group: "postgresql.cnpg.io", Kind: "Database"}:            {health: postgresDatabaseObjectHealth},
	{Group: "postgresql.cnpg.io", Kind: "Publication"}:         {health: postgresDatabaseObjectHealth},
	{Group: "postgresql.cnpg.io", Kind: "Subscription"}:        {health: postgresDatabaseObjectHealth},
	{Group: "postgresql.cnpg.io", Kind: "ImageCatalog"}:        configTraits,
	{Group: "postgresql.cnpg.io", Kind: "ClusterImageCatalog"}: configTraits,
}

// postgresDatabaseObjectHealth returns the health of an object within a database. A failure is tried again.
func postgresDatabaseObjectHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	h, reason, message := (&healthReader{observedIsEnough: true}).readHealth(obj)
	if st := statusOf(obj); h == atoll.Healthy && !boolField(st, "applied") {
		return atoll.Progressing, "NotApplied", stringField(st, "message")
	}
	return h, reason, message
}

// elasticKinds: the operator of Elastic reports health as colours.
var elasticKinds = customKinds{
	{Group: "elasticsearch.k8s.elastic.co", Kind: "Elasticsearch"}: {health: elasticsearchHealth,
		podParts: []podPart{{listPath: parsePath("spec.nodeSets"), nameKey: "name", countPods: podCountAt("count", 1), templatePath: parsePath("podTemplate")}}},
	{Group: "kibana.k8s.elastic.co", Kind: "Kibana"}:                     elasticComponentTraits("kibana"),
	{Group: "apm.k8s.elastic.co", Kind: "ApmServer"}:                     elasticComponentTraits("apm-server"),
	{Group: "enterprisesearch.k8s.elastic.co", Kind: "EnterpriseSearch"}: elasticComponentTraits("enterprise-search"),
	{Group: "maps.k8s.elastic.co", Kind: "ElasticMapsServer"}:            elasticComponentTraits("maps"),
	{Group: "logstash.k8s.elastic.co", Kind: "Logstash"}:                 elasticComponentTraits("logstash"),
	{Group: "packageregistry.k8s.elastic.co", Kind: "PackageRegistry"}:   elasticComponentTraits("package-registry"),
	{Group: "autoscaling.k8s.elastic.co", Kind: "ElasticsearchAutoscaler"}: {
		health: newHealthFunc(healthReader{requiredConditions: []string{"Active", "Healthy", "Online"}})},
	{Group: "stackconfigpolicy.k8s.elastic.co", Kind: "StackConfigPolicy"}: {
		health: newHealthFunc(healthReader{phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
			"Ready": phaseHealthy, "ApplyingChanges": phaseProgressing, "Error": phaseProgressing, "Invalid": phaseDegraded, "Conflict": phaseDegraded, "Unknown": atoll.Unknown}})},
	{Group: "beat.k8s.elastic.co", Kind: "Beat"}:   {health: colourHealth, customPhasePath: parsePath("health")},
	{Group: "agent.k8s.elastic.co", Kind: "Agent"}: {health: colourHealth, customPhasePath: parsePath("health")},
}

// colourHealth is for kinds without data. They are red until the first pod runs.
var colourHealth = newHealthFunc(healthReader{phasePath: parsePath("health"), phaseHealth: map[string]atoll.Health{
	"green": phaseHealthy, "yellow": phaseProgressing, "red": phaseProgressing, "unknown": phaseProgressing}})

func elasticComponentTraits(component string) kindTraits {
	return kindTraits{health: colourHealth, customPhasePath: parsePath("health"),
		podParts: []podPart{{name: component, countPods: podCountAt("spec.count", 1), templatePath: parsePath("spec.podTemplate")}}}
}

// elasticsearchHealth: yellow means that replicas of data are missing, the permanent state of a
// single node. Red means that data is not available.
func elasticsearchHealth(obj *unstructured.Unstructured) (atoll.Health, string, string) {
	changing := healthReader{phasePath: defaultPhasePath, phaseHealth: map[string]atoll.Health{
		"Ready": phaseHealthy, "ApplyingChanges": phaseProgressing, "MigratingData": phaseProgressing, "Stalled": phaseDegraded, "Invalid": phaseDegraded}}
	if h, reason, message := changing.readHealth(obj); h != atoll.Healthy {
		return h, reason, message
	}
	colour := healthReader{phasePath: parsePath("health"), phaseHealth: map[string]atoll.Health{
		"green": phaseHealthy, "yellow": phaseHealthy, "red": phaseDegraded, "unknown": phaseProgressing}}
	return colour.readHealth(obj)
}
