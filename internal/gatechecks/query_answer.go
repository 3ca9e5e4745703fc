package gatechecks

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"

	"atoll.dev/atoll/internal/phrase"
)

// queryAnswer is an answer of Prometheus' HTTP API to an instant query.
type queryAnswer struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Data      struct {
		ResultType string          `json:"resultType"`
		Result     json.RawMessage `json:"result"`
	} `json:"data"`
}

// sample is a time and the text of a value.
type sample [2]json.RawMessage

// errorTypes are those of Prometheus' API. Another text of a server is not shown.
var errorTypes = []string{"timeout", "canceled", "execution", "bad_data", "internal", "unavailable", "not_found", "not_acceptable"}

// DecodeQueryAnswer returns the number of an answer to an instant query. The error is for people: no number, several, or none that
// is finite. The body is bounded by the caller.
func DecodeQueryAnswer(status int, body []byte) (float64, error) {
	var answer queryAnswer
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, problem(fmt.Sprintf("the server answers with status %d, and not as Prometheus does", status))
	}
	if answer.Status != "success" || status != http.StatusOK {
		text := fmt.Sprintf("the server answers with status %d", status)
		if slices.Contains(errorTypes, answer.ErrorType) {
			text += " and the error " + answer.ErrorType
		}
		return 0, problem(text)
	}
	switch answer.Data.ResultType {
	case "scalar":
		var one sample
		if err := json.Unmarshal(answer.Data.Result, &one); err != nil {
			return 0, errOtherForm
		}
		return one.parseValue()
	case "vector":
		return decodeVector(answer.Data.Result)
	case "matrix", "string":
		return 0, problem("the query gives a " + answer.Data.ResultType + ", and one number is needed")
	}
	return 0, errOtherForm
}

const errOtherForm = problem("the server answers, and not as Prometheus does")

func decodeVector(result []byte) (float64, error) {
	var series []struct {
		Value     *sample         `json:"value"`
		Histogram json.RawMessage `json:"histogram"`
	}
	if err := json.Unmarshal(result, &series); err != nil {
		return 0, errOtherForm
	}
	switch {
	case len(series) == 0:
		return 0, problem("the query finds no series")
	case len(series) > 1:
		return 0, problem("the query gives " + strconv.Itoa(len(series)) + " series, and one is needed: aggregate them, as by sum()")
	case len(series[0].Histogram) > 0:
		return 0, problem("the query gives a histogram, and one number is needed")
	case series[0].Value == nil:
		return 0, errOtherForm
	}
	return series[0].Value.parseValue()
}

func (s sample) parseValue() (float64, error) {
	var text string
	if err := json.Unmarshal(s[1], &text); err != nil {
		return 0, errOtherForm
	}
	value, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !math.IsInf(value, 0):
		return 0, errOtherForm
	case math.IsNaN(value) || math.IsInf(value, 0):
		return 0, problem("the result is " + strconv.FormatFloat(value, 'g', -1, 64) + ", which is no finite number")
	}
	return value, nil
}

func cutText(s string) string { return phrase.TruncateText(phrase.EscapeLine(s), maxTextBytes) }
