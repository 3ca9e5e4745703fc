package get

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
)

// table of the hub, with what it says of clusters in columns of its own.
type table struct {
	headings []string
	rows     []tableRow
}

// tableRow is one object.
type tableRow struct {
	cluster string
	object  metav1.ObjectMeta
	cells   []string
}

// key of the object, by which it is known again.
func (r tableRow) key() string { return r.object.Namespace + "/" + r.object.Name }

// columns of a table of the API that are shown, by their index.
func columns(defs []metav1.TableColumnDefinition, wide bool) []int {
	var out []int
	for i, d := range defs {
		// The cluster goes first.
		if (wide || d.Priority == 0) && d.Name != clusterColumn {
			out = append(out, i)
		}
	}
	return out
}

// clusterColumn is that of the hub for what runs in members.
const clusterColumn = "Cluster"

// frame says which columns a table has, and is the same for all rows of a list and the watch
// that follows it.
type frame struct {
	asked   asked
	wide    bool
	spaces  bool // a column for namespaces
	defs    []metav1.TableColumnDefinition
	columns []int
}

func (f *frame) headings() []string {
	var out []string
	if f.asked.live() {
		out = append(out, "CLUSTER")
	}
	if f.spaces {
		out = append(out, "NAMESPACE")
	}
	for _, i := range f.columns {
		name := strings.ToUpper(f.defs[i].Name)
		if f.asked.nodes() && name == "NAME" {
			name = "CLUSTER"
		}
		out = append(out, name)
	}
	if f.asked.placed() {
		out = append(out, "CLUSTERS", "STATE")
		if f.wide {
			out = append(out, "RUNS IN")
		}
	}
	return out
}

// add the rows of a table of the API that are of chosen clusters.
func (f *frame) add(t *table, of *metav1.Table, w whereabouts) error {
	if len(of.ColumnDefinitions) > 0 {
		f.defs, f.columns = of.ColumnDefinitions, columns(of.ColumnDefinitions, f.wide)
		t.headings = f.headings()
	}
	for _, r := range of.Rows {
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &m); err != nil {
			return fmt.Errorf("read a table of %s: %w", f.asked.mapping.Resource.Resource, err)
		}
		row := tableRow{cluster: f.asked.clusterOf(&m), object: m.ObjectMeta}
		at, placed := w.of(atoll.ItemKey{Group: f.asked.mapping.GroupVersionKind.Group, Kind: f.asked.mapping.GroupVersionKind.Kind, Namespace: m.Namespace, Name: m.Name}, m.UID)
		switch {
		case f.asked.clusters == nil:
		case f.asked.placed():
			if at = at.within(f.asked.clusters); len(at) == 0 {
				continue
			}
		case (f.asked.live() || f.asked.nodes()) && !f.asked.chosen(row.cluster):
			continue
		}
		row.cells = f.cells(row, r.Cells, at, placed)
		t.rows = append(t.rows, row)
	}
	return nil
}

func (f *frame) cells(row tableRow, given []any, at places, placed bool) []string {
	var cells []string
	if f.asked.live() {
		cells = append(cells, row.cluster)
	}
	if f.spaces {
		cells = append(cells, row.object.Namespace)
	}
	for _, i := range f.columns {
		text := ""
		if i < len(given) && given[i] != nil {
			text = strings.ReplaceAll(fmt.Sprint(given[i]), "\n", " ")
		}
		cells = append(cells, text)
	}
	if f.asked.placed() {
		clusters, state := "", ""
		if placed {
			clusters, state = at.ready(), at.state()
		}
		cells = append(cells, clusters, state)
		if f.wide {
			cells = append(cells, at.names())
		}
	}
	return cells
}

// lasting are the cells of a row but for ages.
func (f *frame) lasting(cells []string) []string {
	out := slices.Clone(cells)
	for i, heading := range f.headings() {
		if heading == "AGE" || heading == "LAST SEEN" || heading == "FIRST SEEN" {
			out[i] = ""
		}
	}
	return out
}

// sort by cluster; what is of one cluster stays in its order, and what is of none comes first.
func (t *table) sort() {
	slices.SortStableFunc(t.rows, func(a, b tableRow) int { return strings.Compare(a.cluster, b.cluster) })
}
