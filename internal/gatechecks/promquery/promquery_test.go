package promquery

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func newVectorAnswer(values ...string) string {
	var all []string
	for _, v := range values {
		all = append(all, `{"metric":{"job":"web"},"value":[1700000000.1,"`+v+`"]}`)
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(all, ",") + `]}}`
}

// An answer of Prometheus' API is one finite number, or no data with a reason that has no text of the server.
func TestDecodeAnswer(t *testing.T) {
	for body, want := range map[string]string{
		newVectorAnswer("0.25"): "0.25",
		`{"status":"success","data":{"resultType":"scalar","result":[1700000000,"3"]}}`:     "3",
		`{"status":"success","data":{"resultType":"scalar","result":[1700000000,"1e999"]}}`: "no finite number",
		newVectorAnswer():         "the query finds no series",
		newVectorAnswer("1", "2"): "the query gives 2 series, and one is needed",
		newVectorAnswer("NaN"):    "the result is NaN, which is no finite number",
		newVectorAnswer("+Inf"):   "the result is +Inf, which is no finite number",
		newVectorAnswer("x"):      "not as Prometheus does",
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"histogram":[1,{"count":"1"}]}]}}`: "gives a histogram",
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}`:                               "not as Prometheus does",
		`{"status":"success","data":{"resultType":"vector","result":{}}}`:                                            "not as Prometheus does",
		`{"status":"success","data":{"resultType":"scalar","result":"1"}}`:                                           "not as Prometheus does",
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                            "the query gives a matrix",
		`{"status":"success","data":{"resultType":"hush","result":[]}}`:                                              "not as Prometheus does",
		`{"status":"error","errorType":"bad_data","error":"hush"}`:                                                   "status 200 and the error bad_data",
		`{"status":"error","errorType":"hush","error":"hush"}`:                                                       "the server answers with status 200",
		`{}`: "the server answers with status 200",
		`[]`: "not as Prometheus does",
	} {
		value, err := DecodeAnswer(http.StatusOK, []byte(body))
		got := fmt.Sprint(value)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || strings.Contains(got, "hush") {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if _, err := DecodeAnswer(http.StatusServiceUnavailable, []byte(newVectorAnswer("1"))); err == nil {
		t.Error("an answer with status 503 has a value")
	}
}
