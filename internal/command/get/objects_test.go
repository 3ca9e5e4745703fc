package get

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/command/client"
	"atoll.dev/atoll/internal/command/output"
)

func newMapping(group, resource, kind string) *meta.RESTMapping {
	return &meta.RESTMapping{
		Resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, Scope: meta.RESTScopeNamespace,
		GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind},
	}
}

// givenTable table of the hub, with rows "namespace/name@cluster".
func givenTable(columns string, rows ...string) *metav1.Table {
	var of metav1.Table
	for _, name := range strings.Split(columns, ",") {
		d := metav1.TableColumnDefinition{Name: strings.TrimSuffix(name, "+")}
		if strings.HasSuffix(name, "+") {
			d.Priority = 1
		}
		of.ColumnDefinitions = append(of.ColumnDefinitions, d)
	}
	for _, r := range rows {
		at, cluster, _ := strings.Cut(r, "@")
		namespace, name, _ := strings.Cut(at, "/")
		labels := ""
		if cluster != "" {
			labels = fmt.Sprintf(`,"labels":{%q:%q}`, atoll.LabelCluster, cluster)
		}
		row := metav1.TableRow{Object: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"namespace":%q,"name":%q%s}}`, namespace, name, labels)}}
		for _, d := range of.ColumnDefinitions {
			switch d.Name {
			case "Name":
				row.Cells = append(row.Cells, name)
			case "Cluster":
				row.Cells = append(row.Cells, cluster)
			default:
				row.Cells = append(row.Cells, json.Number("1"))
			}
		}
		of.Rows = append(of.Rows, row)
	}
	return &of
}

// printTable is what a table of the hub is printed as.
func printTable(t *testing.T, f tableFrame, of *metav1.Table, w placeIndex) string {
	t.Helper()
	var out strings.Builder
	p := &tablePrinter{o: &getObjectsOptions{}, request: f.request, out: &out, frame: f, palette: &output.Palette{}}
	if err := p.frame.addRows(&p.table, of, w); err != nil {
		t.Fatal(err)
	}
	p.table.sortByCluster()
	if err := p.printRows(p.table, true); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTablesTellWhereThingsRun(t *testing.T) {
	web, db := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}, atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "db"}
	w := placeIndex{keys: map[atoll.ItemKey]itemPlaces{
		web: {{cluster: "oslo", state: atoll.RowReady}, {cluster: "rome", state: atoll.RowDegraded}, {cluster: "york", state: atoll.RowReady, away: true}},
		db:  {{cluster: "oslo", state: atoll.RowReady}, {cluster: "york", state: atoll.RowReady, leaving: true}},
	}}
	pods, deployments := newMapping("", "pods", "Pod"), newMapping("apps", "deployments", "Deployment")
	some := givenTable("Name,Ready,Cluster,Node+", "shop/b.rome@rome", "shop/template", "shop/z.oslo@oslo", "shop/a.oslo@oslo")
	for name, c := range map[string]struct {
		frame tableFrame
		of    *metav1.Table
		want  string
	}{
		"live": {tableFrame{request: objectQuery{mapping: pods}, spaces: true}, some, `CLUSTER   NAMESPACE   NAME       READY
-         shop        template   1
oslo      shop        z.oslo     1
oslo      shop        a.oslo     1
rome      shop        b.rome     1
`},
		"live, wide, in some clusters": {tableFrame{request: objectQuery{mapping: pods, clusters: []string{"rome"}}, wide: true}, some, `CLUSTER   NAME     READY   NODE
rome      b.rome   1       1
`},
		"templates": {tableFrame{request: objectQuery{mapping: deployments}}, givenTable("Name,Ready", "shop/web", "shop/db", "shop/none"), `NAME   READY   CLUSTERS   STATE
web    1       2/3        Degraded, 1 away
db     1       1/1        Ready, 1 leaving
none   1       -          -
`},
		"templates, wide, in some clusters": {tableFrame{request: objectQuery{mapping: deployments, clusters: []string{"rome", "york"}}, wide: true}, givenTable("Name,Ready", "shop/web", "shop/none"), `NAME   READY   CLUSTERS   STATE              RUNS IN
web    1       1/2        Degraded, 1 away   rome(Degraded),york(away)
`},
		"nodes": {tableFrame{request: objectQuery{mapping: newMapping("", "nodes", "Node"), clusters: []string{"oslo"}}}, givenTable("Name,Status", "/rome", "/oslo"), `CLUSTER   STATUS
oslo      1
`},
		"ours": {tableFrame{request: objectQuery{mapping: newMapping("atoll.dev", "clustersets", "ClusterSet")}}, givenTable("Name", "/prod"), "NAME\nprod\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := printTable(t, c.frame, c.of, w); got != c.want {
				t.Errorf("it prints\n%s\nwanted\n%s", got, c.want)
			}
		})
	}
}

func TestWhereAnItemIs(t *testing.T) {
	key := atoll.ItemKey{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	other := key
	other.Name = "other"
	status := func(generation int64, applied bool, items ...atoll.ItemStatus) *atoll.RowStatus {
		return &atoll.RowStatus{Generation: generation, Applied: applied, Items: items}
	}
	for name, c := range map[string]struct {
		spec   atoll.RowSpec
		status *atoll.RowStatus
		want   itemPlace
		out    bool
	}{
		"nothing is reported":  {want: itemPlace{state: atoll.RowProgressing}},
		"of an earlier change": {spec: atoll.RowSpec{Generation: 2}, status: status(1, true), want: itemPlace{state: atoll.RowProgressing}},
		"applied":              {status: status(1, true), want: itemPlace{state: atoll.RowReady}},
		"not applied":          {status: status(1, false), want: itemPlace{state: atoll.RowProgressing}},
		"another is not well":  {status: status(1, true, atoll.ItemStatus{Key: other, Health: atoll.Degraded}), want: itemPlace{state: atoll.RowReady}},
		"not well":             {status: status(1, true, atoll.ItemStatus{Key: key, Health: atoll.Degraded}), want: itemPlace{state: atoll.RowDegraded}},
		"on its way":           {status: status(1, true, atoll.ItemStatus{Key: key, Health: atoll.Progressing}), want: itemPlace{state: atoll.RowProgressing}},
		"refused":              {status: status(1, false, atoll.ItemStatus{Key: key, Error: true}), want: itemPlace{state: atoll.RowFailed}},
		"well, others are not": {status: status(1, false, atoll.ItemStatus{Key: key, Health: atoll.Healthy}), want: itemPlace{state: atoll.RowReady}},
		"leaving":              {spec: atoll.RowSpec{Phase: atoll.RowLeaving}, status: status(1, true), want: itemPlace{state: atoll.RowReady, leaving: true}},
		"pending":              {spec: atoll.RowSpec{Phase: atoll.RowPending}, want: itemPlace{state: atoll.RowProgressing, isPending: true}},
		"kept out":             {spec: atoll.RowSpec{Absent: []string{key.String()}}, out: true},
		"vacant":               {spec: atoll.RowSpec{Phase: atoll.RowVacant}, out: true},
	} {
		if c.spec.Phase == "" {
			c.spec.Phase = atoll.RowActive
		}
		got, in := itemPlaceInRow(key, client.Row{Spec: c.spec, Status: c.status}, false)
		if in == c.out || in && got != c.want {
			t.Errorf("%s: it is %+v, %t", name, got, in)
		}
	}
}
