package interpret_test

import (
	"fmt"
	"testing"

	"atoll.dev/atoll/internal/interpret"
)

// Health of kinds that the table knows: under 20 µs each.
func BenchmarkHealth(b *testing.B) {
	for name, text := range map[string]string{
		"Deployment": web2Done,
		"Pod":        "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nstatus: {phase: Running, conditions: [{type: PodScheduled, status: 'True'}, {type: Initialized, status: 'True'}, {type: ContainersReady, status: 'True'}, {type: Ready, status: 'True'}]}",
		"Rollout":    head("argoproj.io/v1alpha1", "Rollout") + "status: {phase: Healthy, observedGeneration: '2'}",
		"Kafka":      head("kafka.strimzi.io/v1beta2", "Kafka") + "status: {observedGeneration: 2, conditions: [" + cond("Ready", "True", "") + "]}",
		"unknown":    head("example.com/v1", "Toy") + "status: {observedGeneration: 2, conditions: [" + cond("Ready", "True", "") + "]}",
	} {
		obj := object(b, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				interpret.Health(obj)
			}
		})
	}
}

// A Deployment's status over 10,000 rows that report one by one: under 5 ms.
func BenchmarkAggregate(b *testing.B) {
	for _, distinct := range []int{1, 100} {
		b.Run(fmt.Sprintf("statuses=%d", distinct), func(b *testing.B) {
			rows := manyRows(b, distinct)
			template := object(b, web2)
			b.ReportAllocs()
			for b.Loop() {
				interpret.Aggregate(template, false, rows, 2)
			}
		})
	}
}

func manyRows(t testing.TB, distinct int) []interpret.RowItem {
	rows := make([]interpret.RowItem, 10_000)
	for i := range rows {
		n := i%distinct + 1
		text := fmt.Sprintf("spec: {replicas: %d}\nstatus: {observedGeneration: 2, replicas: %d, updatedReplicas: %d, readyReplicas: %d, availableReplicas: %d, %s}", n, n, n, n, n, allDone)
		if i < distinct {
			rows[i] = report("", object(t, deploymentHead+text))
		} else {
			rows[i] = rows[i-distinct]
		}
		rows[i].Cluster = fmt.Sprintf("cluster-%05d", (i*7919)%10_000)
	}
	return rows
}

// Counts do not depend on the machine: aggregating takes no allocation for each row.
func TestAggregatingManyRowsAllocatesForWhatDiffers(t *testing.T) {
	rows, template := manyRows(t, 100), object(t, web2)
	if n := testing.AllocsPerRun(3, func() { interpret.Aggregate(template, false, rows, 2) }); n > 2_000 {
		t.Errorf("10,000 rows that say 100 things take %.0f allocations", n)
	}
}
