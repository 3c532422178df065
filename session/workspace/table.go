package workspace

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// table returns the rows of a value for CSV: of a [][]string, or of a slice of maps with a header.
func table(value any) ([][]string, error) {
	if rows, ok := value.([][]string); ok {
		return rows, nil
	}
	list := reflect.ValueOf(value)
	if kind := list.Kind(); kind != reflect.Slice && kind != reflect.Array {
		return nil, fmt.Errorf("it is written from a slice of maps or a [][]string, not from a %T", value)
	}
	header := map[string]bool{}
	records := make([]map[string]any, list.Len())
	for i := range records {
		var err error
		if records[i], err = tableRow(list.Index(i)); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		for name := range records[i] {
			header[name] = true
		}
	}
	if len(header) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(header))
	rows := [][]string{names}
	for i, r := range records {
		row := make([]string, len(names))
		for j, name := range names {
			var err error
			if row[j], err = cell(r[name]); err != nil {
				return nil, fmt.Errorf("row %d, column %q: %w", i, name, err)
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// tableRow returns a map with string keys, which may be in an interface.
func tableRow(v reflect.Value) (map[string]any, error) {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String {
		return nil, errors.New("not a map with string keys")
	}
	r := map[string]any{}
	for it := v.MapRange(); it.Next(); {
		r[it.Key().String()] = it.Value().Interface()
	}
	return r, nil
}

// cell returns the text of a scalar.
func cell(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	}
	switch kind := reflect.ValueOf(v).Kind(); {
	case kind == reflect.String: // such as json.Number
		return reflect.ValueOf(v).String(), nil
	case kind == reflect.Bool, reflect.Int <= kind && kind <= reflect.Float64:
		text, err := json.Marshal(v)
		return string(text), err
	}
	return "", fmt.Errorf("a %T is not one text, number or truth value", v)
}
