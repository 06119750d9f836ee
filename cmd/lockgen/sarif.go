package main

import (
	"path/filepath"
	"strings"

	"github.com/lockgen/lockgen/lockcheck"
	"github.com/lockgen/lockgen/lockcheck/module"
)

// These types are the part of SARIF 2.1.0 that GitHub code scanning reads.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		URI     string      `json:"informationUri"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string    `json:"id"`
		Short   sarifText `json:"shortDescription"`
		HelpURI string    `json:"helpUri"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Related      []sarifLocation   `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		ID       int           `json:"id,omitempty"`
		Physical sarifPhysical `json:"physicalLocation"`
		Message  *sarifText    `json:"message,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line   int `json:"startLine"`
		Column int `json:"startColumn"`
	}
)

// sarif returns the result as a log with one run. Its file names are relative to c.dir.
func (c *command) sarif(res *module.Result) sarifLog {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "lockgen", URI: "https://github.com/lockgen/lockgen", Version: strings.TrimPrefix(version(), "lockgen ")}
	for _, a := range lockcheck.Analyzers() {
		summary, _, _ := strings.Cut(a.Doc, "\n")
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{a.Name, sarifText{summary}, a.URL})
	}
	for _, d := range res.Diagnostics {
		out := sarifResult{
			RuleID: d.Check, Level: "warning", Message: sarifText{d.Message},
			Locations:    []sarifLocation{{Physical: c.sarifPlace(d.Place)}},
			Fingerprints: map[string]string{"lockgen/v1": d.ID},
		}
		for i, n := range d.Related {
			out.Related = append(out.Related, sarifLocation{ID: i + 1, Physical: c.sarifPlace(n.Place), Message: &sarifText{n.Message}})
		}
		run.Results = append(run.Results, out)
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

func (c *command) sarifPlace(p module.Place) sarifPhysical {
	return sarifPhysical{sarifArtifact{filepath.ToSlash(c.relative(p.File))}, sarifRegion{max(p.Line, 1), max(p.Column, 1)}}
}
