/** The words for an error: the page's own for codes it knows (`parts.faults.<code>`, with the gateway's as `{message}`), else the gateway's. */
import { useI18n } from "vue-i18n";
import { ApiError } from "@/api/errors";
import { toast } from "./toasts";

export function useFaultText(): (fault: unknown) => string {
  const { t, te } = useI18n();
  return (fault) => {
    const error = ApiError.of(fault);
    const key = `parts.faults.${error.code}`;
    const words = te(key) ? t(key, { message: error.message }) : error.message;
    return error.isWorded && words.endsWith(error.message) ? error.message : words;
  };
}

/** `catch (fault) { tell(fault) }`: a toast with what went wrong and the hint. */
export function useFaultToast(): (fault: unknown) => void {
  const said = useFaultText();
  return (fault) => toast({ title: said(fault), text: ApiError.of(fault).hint ?? undefined, hue: "danger" });
}
