package get

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
)

// outputTable is a table of the hub, with its texts about clusters in columns of their own.
type outputTable struct {
	headings []string
	rows     []tableRow
}

// tableRow is one object.
type tableRow struct {
	cluster string
	object  metav1.ObjectMeta
	cells   []string
}

// rowKey returns the key of the object, by which it is known again.
func (r tableRow) rowKey() string { return r.object.Namespace + "/" + r.object.Name }

// shownColumns returns the columns of a table of the API that are shown, by their index.
func shownColumns(defs []metav1.TableColumnDefinition, wide bool) []int {
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

// tableFrame returns which columns a table has, and is the same for all rows of a list and the watch
// that follows it.
type tableFrame struct {
	request objectQuery
	wide    bool
	spaces  bool // a column for namespaces
	defs    []metav1.TableColumnDefinition
	columns []int
}

func (f *tableFrame) headingCells() []string {
	var out []string
	if f.request.isLiveKind() {
		out = append(out, "CLUSTER")
	}
	if f.spaces {
		out = append(out, "NAMESPACE")
	}
	for _, i := range f.columns {
		name := strings.ToUpper(f.defs[i].Name)
		if f.request.isNodeKind() && name == "NAME" {
			name = "CLUSTER"
		}
		out = append(out, name)
	}
	if f.request.isPlaceableKind() {
		out = append(out, "CLUSTERS", "STATE")
		if f.wide {
			out = append(out, "RUNS IN")
		}
	}
	return out
}

// addRows adds the rows of a table of the API that are of chosen clusters.
func (f *tableFrame) addRows(t *outputTable, of *metav1.Table, w placeIndex) error {
	if len(of.ColumnDefinitions) > 0 {
		f.defs, f.columns = of.ColumnDefinitions, shownColumns(of.ColumnDefinitions, f.wide)
		t.headings = f.headingCells()
	}
	for _, r := range of.Rows {
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Object.Raw, &m); err != nil {
			return fmt.Errorf("read a table of %s: %w", f.request.mapping.Resource.Resource, err)
		}
		row := tableRow{cluster: f.request.clusterOf(&m), object: m.ObjectMeta}
		at, placed := w.locationOf(atoll.ItemKey{Group: f.request.mapping.GroupVersionKind.Group, Kind: f.request.mapping.GroupVersionKind.Kind, Namespace: m.Namespace, Name: m.Name}, m.UID)
		switch {
		case f.request.clusters == nil:
		case f.request.isPlaceableKind():
			if at = at.restrictTo(f.request.clusters); len(at) == 0 {
				continue
			}
		case (f.request.isLiveKind() || f.request.isNodeKind()) && !f.request.isChosen(row.cluster):
			continue
		}
		row.cells = f.rowCells(row, r.Cells, at, placed)
		t.rows = append(t.rows, row)
	}
	return nil
}

func (f *tableFrame) rowCells(row tableRow, given []any, at itemPlaces, placed bool) []string {
	var cells []string
	if f.request.isLiveKind() {
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
	if f.request.isPlaceableKind() {
		clusters, state := "", ""
		if placed {
			clusters, state = at.readyText(), at.stateText()
		}
		cells = append(cells, clusters, state)
		if f.wide {
			cells = append(cells, at.clusterNamesText())
		}
	}
	return cells
}

// cellsWithoutAge returns the cells of a row with the ages blanked.
func (f *tableFrame) cellsWithoutAge(cells []string) []string {
	out := slices.Clone(cells)
	for i, heading := range f.headingCells() {
		if heading == "AGE" || heading == "LAST SEEN" || heading == "FIRST SEEN" {
			out[i] = ""
		}
	}
	return out
}

// sortByCluster sorts by cluster; what is of one cluster stays in its order, and what is of none comes first.
func (t *outputTable) sortByCluster() {
	slices.SortStableFunc(t.rows, func(a, b tableRow) int { return strings.Compare(a.cluster, b.cluster) })
}
