import type { Component } from "vue";

export interface MenuItem {
  label: string;
  run: () => void;
  icon?: Component;
  note?: string;
  checked?: boolean;
  danger?: boolean;
  disabled?: boolean;
  /** A line above it. */
  apart?: boolean;
}
