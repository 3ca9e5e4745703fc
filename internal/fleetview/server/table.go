package server

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/atoll"
)

// ConvertToTable gives people upstream's table with a column more, behind those that are shown
// without -o wide: the cluster.
func (o *objectStorage) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	if o.fleet.isHubIdentity(ctx) {
		return o.Store.ConvertToTable(ctx, obj, options)
	}
	asked, _ := options.(*metav1.TableOptions)
	withHeaders := &metav1.TableOptions{}
	if asked != nil {
		*withHeaders = *asked
	}
	withHeaders.NoHeaders = false // they define where the column goes
	table, err := o.Store.ConvertToTable(ctx, obj, withHeaders)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(table.ColumnDefinitions, func(c metav1.TableColumnDefinition) bool { return c.Priority > 0 })
	if at < 0 {
		at = len(table.ColumnDefinitions)
	}
	table.ColumnDefinitions = slices.Insert(slices.Clone(table.ColumnDefinitions), at, metav1.TableColumnDefinition{
		Name: "Cluster", Type: "string", Description: "The cluster that it runs in; empty for what is stored on the hub.",
	})
	for i := range table.Rows {
		row := &table.Rows[i]
		row.Cells = slices.Insert(row.Cells, min(at, len(row.Cells)), any(clusterOf(row.Object.Object)))
	}
	if asked != nil && asked.NoHeaders {
		table.ColumnDefinitions = nil
	}
	return table, nil
}

// clusterOf returns the cluster of an object that is shown.
func clusterOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetLabels()[atoll.LabelCluster]
}
