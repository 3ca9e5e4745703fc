package kinds_test

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/kinds"
)

// Health of known kinds: under 20 µs each.
func BenchmarkHealth(b *testing.B) {
	for name, text := range map[string]string{
		"Deployment": web2Done,
		"Pod":        "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nstatus: {phase: Running, conditions: [{type: PodScheduled, status: 'True'}, {type: Initialized, status: 'True'}, {type: ContainersReady, status: 'True'}, {type: Ready, status: 'True'}]}",
		"Rollout":    headYAML("argoproj.io/v1alpha1", "Rollout") + "status: {phase: Healthy, observedGeneration: '2'}",
		"Kafka":      headYAML("kafka.strimzi.io/v1beta2", "Kafka") + "status: {observedGeneration: 2, conditions: [" + conditionYAML("Ready", "True", "") + "]}",
		"unknown":    headYAML("example.com/v1", "Toy") + "status: {observedGeneration: 2, conditions: [" + conditionYAML("Ready", "True", "") + "]}",
	} {
		obj := parseObject(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				kinds.AssessHealth(obj)
			}
		})
	}
}

// A Deployment's status over 10,000 different rows: under 5 ms.
func BenchmarkAggregate(b *testing.B) {
	for _, distinct := range []int{1, 100} {
		b.Run(fmt.Sprintf("statuses=%d", distinct), func(b *testing.B) {
			rows := manyRows(b, distinct)
			template := parseObject(b, web2)
			b.ReportAllocs()
			for b.Loop() {
				kinds.AggregateStatus(template, false, rows, 2, 0)
			}
		})
	}
}

func manyRows(t testing.TB, distinct int) []kinds.RowItem {
	rows := make([]kinds.RowItem, 10_000)
	for i := range rows {
		n := i%distinct + 1
		text := fmt.Sprintf("spec: {replicas: %d}\nstatus: {observedGeneration: 2, replicas: %d, updatedReplicas: %d, readyReplicas: %d, availableReplicas: %d, %s}", n, n, n, n, n, allDone)
		if i < distinct {
			rows[i] = reportRow("", parseObject(t, deploymentHeadYAML+text))
		} else {
			rows[i] = rows[i-distinct]
		}
		rows[i].Cluster = fmt.Sprintf("cluster-%05d", (i*7919)%10_000)
	}
	return rows
}

// Aggregation makes no allocation for each row. Counts do not depend on the machine.
func TestAggregatingManyRowsAllocatesForWhatDiffers(t *testing.T) {
	rows, template := manyRows(t, 100), parseObject(t, web2)
	if n := testing.AllocsPerRun(3, func() { kinds.AggregateStatus(template, false, rows, 2, 0) }); n > 2_000 {
		t.Errorf("10,000 rows that say 100 things take %.0f allocations", n)
	}
}
